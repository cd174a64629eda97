"""Overrides: temporary manual changes of one service's policy. An override takes precedence over the policy."""

from webhook.core.overrides.effects import (
    LiveOverrides,
    WindowReset,
    breaker_resets,
    overridden,
    released_uids,
    remarks,
    resets,
)
from webhook.core.overrides.entry import (
    Grant,
    ManualBreakerState,
    Override,
    PartialModes,
    QueueState,
    QuotaReset,
    ReleasedPod,
    of_json,
)
from webhook.core.overrides.merging import combined, merged

__all__ = [
    "Grant",
    "LiveOverrides",
    "ManualBreakerState",
    "Override",
    "PartialModes",
    "QueueState",
    "QuotaReset",
    "ReleasedPod",
    "WindowReset",
    "breaker_resets",
    "combined",
    "merged",
    "of_json",
    "overridden",
    "released_uids",
    "remarks",
    "resets",
]
