"""Nodes page: their load as one extender knows it, the hottest first."""

from urllib.parse import urlencode

from webhook.console.interface.page import Page, PageRequest
from webhook.console.interface.page_documents import read_nodes
from webhook.core.admission.denials import format_utc
from webhook.core.console_views.nodes import ROWS, NodesView, build_nodes
from webhook.errors import UserError

_TEXT_MAX = 253
_NODES_MAX = 50_000


async def build(request: PageRequest) -> NodesView:
    """Return the page. Without an extender it says so, and what to do."""
    name, page = request.query.get("name", "").strip()[:_TEXT_MAX], max(1, request.parse_number("page"))
    time = format_utc(request.reader.now_us())
    asked = {"name": name} if name else {"limit": str(min(page * ROWS, _NODES_MAX))}
    try:
        extender, document = await read_nodes(request.reader, f"/api/v1/nodes?{urlencode(asked)}")
    except UserError as error:
        return NodesView(time, name, problem=str(error), remedy=error.remedy)
    return build_nodes(document, extender, time, name, page)


PAGE = Page("nodes", "/nodes", "Nodes", build, menu_place=30, menu_text="Nodes")
