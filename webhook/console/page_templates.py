"""Templates of the pages: Jinja2 with autoescaping, and with every unprintable character as its escape."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from webhook.core.console_views.cell import CELL_ATTRIBUTES, Cells
from webhook.core.plain_text import escape_document
from webhook.core.reporting.queue_document import format_duration


def build_environment() -> Environment:
    """Return the environment; a name that a template misspells is an error."""
    environment = Environment(
        loader=PackageLoader("webhook.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["live"] = _render_live_attributes
    environment.filters["duration"] = format_duration
    return environment


def render(environment: Environment, template: str, values: dict[str, Any]) -> str:
    """Return a page. Texts come from outside: markup in them is escaped, and so is what hides or reorders text."""
    return environment.get_template(template).render(escape_document(values))


def _render_live_attributes(cells: Cells, key: str) -> Markup:
    """Return the attributes of the element that shows a cell."""
    cell = cells[key]
    named = {"data-live": key, **{name: text for name, text in cell.attributes.items() if text is not None}}
    if not named.keys() <= CELL_ATTRIBUTES | {"data-live"}:
        raise ValueError(f"{key}: no cell may set {', '.join(sorted(named.keys() - CELL_ATTRIBUTES))}")
    return Markup(" ").join(Markup('{}="{}"').format(name, escape(text)) for name, text in named.items())
