"""Overrides: hands on a service at 3 a.m., beside the policy and for a time. Override beats policy."""

from webhook.core.overrides.acting import InForce, Reset, breaker_resets, overridden, remarks, resets
from webhook.core.overrides.editing import cleared, displaced, drafted, placed, written
from webhook.core.overrides.entry import Entry, Grant, Hand, PartialModes, QuotaReset
from webhook.core.overrides.loading import Document, load
from webhook.core.overrides.merging import combined, merged

__all__ = [
    "Document",
    "Entry",
    "Grant",
    "Hand",
    "InForce",
    "PartialModes",
    "QuotaReset",
    "Reset",
    "breaker_resets",
    "cleared",
    "combined",
    "displaced",
    "drafted",
    "load",
    "merged",
    "overridden",
    "placed",
    "remarks",
    "resets",
    "written",
]
