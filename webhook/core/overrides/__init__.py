"""Overrides: temporary manual changes of one service's policy. An override takes precedence over the policy."""

from webhook.core.overrides.effects import LiveOverrides, WindowReset, breaker_resets, overridden, remarks, resets
from webhook.core.overrides.entry import Grant, ManualBreakerState, Override, PartialModes, QuotaReset
from webhook.core.overrides.merging import combined, merged

__all__ = [
    "Grant",
    "LiveOverrides",
    "ManualBreakerState",
    "Override",
    "PartialModes",
    "QuotaReset",
    "WindowReset",
    "breaker_resets",
    "combined",
    "merged",
    "overridden",
    "remarks",
    "resets",
]
