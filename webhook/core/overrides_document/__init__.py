"""The overrides document: bytes in, entries or every mistake out; and a document changed by one entry."""

from webhook.core.overrides_document.editing import (
    parse_entry,
    with_entries,
    without_replaced,
    without_service,
    written,
)
from webhook.core.overrides_document.loading import OverridesDocument, load

__all__ = ["OverridesDocument", "load", "parse_entry", "with_entries", "without_replaced", "without_service", "written"]
