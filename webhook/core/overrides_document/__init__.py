"""The overrides document: bytes in, entries or every mistake out; and a document changed by one entry."""

from webhook.core.overrides_document.editing import cleared, displaced, drafted, placed, written
from webhook.core.overrides_document.loading import OverridesDocument, load

__all__ = ["OverridesDocument", "cleared", "displaced", "drafted", "load", "placed", "written"]
