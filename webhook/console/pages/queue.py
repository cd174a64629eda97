"""Queue page: waiting Pods by class and place, for viewers of all services, or of one namespace."""

import asyncio

from msgspec.structs import replace

from webhook.console.interface.page import Page, PageRequest
from webhook.console.interface.page_documents import read_queue
from webhook.core.admission.denials import format_utc
from webhook.core.console_views.queue import BY_PLACE, BY_WAIT, QueueQuery, QueueView, build_queue, hide_pod
from webhook.core.reporting.queue_document import QueueRow
from webhook.errors import UserError

_TEXT_MAX = 253
_NO_NAMESPACE = "You see the waiting Pods of namespaces whose Pods you may list."


async def build(request: PageRequest) -> QueueView:
    """Return the page. Who may not see services names a namespace."""
    viewer = request.viewer
    texts = {name: request.query.get(name, "").strip()[:_TEXT_MAX] for name in ("service", "namespace", "class")}
    sort = BY_WAIT if request.query.get("sort") == BY_WAIT else BY_PLACE
    asked = QueueQuery(texts["service"], texts["namespace"], texts["class"], sort, request.parse_number("page"))
    with_services = await viewer.sees_services()
    time = format_utc(request.reader.now_us())
    if not with_services and not await viewer.sees(asked.namespace):
        if not asked.namespace:
            return QueueView(time, asked, problem=_NO_NAMESPACE, remedy="write its name above")
        return QueueView(
            time, asked, problem=f"You may not list the Pods of {asked.namespace}", remedy="name another namespace"
        )
    try:
        document = await read_queue(request.reader, asked.service)
    except UserError as error:
        return QueueView(time, asked, problem=str(error), remedy=error.remedy)
    found = build_queue(document, asked, with_services=with_services)
    return replace(found, pods=await hide_foreign_pods(request, found.pods))


async def hide_foreign_pods(request: PageRequest, pods: tuple[QueueRow, ...]) -> tuple[QueueRow, ...]:
    """Return waiting Pods, without the names of those whose namespace the viewer may not read."""
    namespaces = list(dict.fromkeys(row.namespace for row in pods))
    may = dict(zip(namespaces, await asyncio.gather(*map(request.viewer.sees, namespaces)), strict=True))
    return tuple(row if may[row.namespace] else hide_pod(row) for row in pods)


PAGE = Page("queue", "/queue", "Queue", build, menu_place=20, menu_text="Queue", is_of_namespace=True)
