"""Overrides document: parsing to entries or to all problems, and editing."""

from webhook.core.overrides_document.editing import (
    parse_entry,
    with_entries,
    without_replaced,
    without_service,
    written,
)
from webhook.core.overrides_document.loading import OverridesDocument, load
from webhook.core.overrides_document.states import OverridesState

__all__ = [
    "OverridesDocument",
    "OverridesState",
    "load",
    "parse_entry",
    "with_entries",
    "without_replaced",
    "without_service",
    "written",
]
