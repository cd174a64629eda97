"""Overrides: temporary manual changes of one service's policy. An override takes precedence over the policy."""

from webhook.core.overrides.effects import InForce, Reset, breaker_resets, overridden, remarks, resets
from webhook.core.overrides.entry import Entry, Grant, Hand, PartialModes, QuotaReset
from webhook.core.overrides.merging import combined, merged

__all__ = [
    "Entry",
    "Grant",
    "Hand",
    "InForce",
    "PartialModes",
    "QuotaReset",
    "Reset",
    "breaker_resets",
    "combined",
    "merged",
    "overridden",
    "remarks",
    "resets",
]
