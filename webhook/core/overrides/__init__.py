"""Overrides: temporary manual changes of one service's policy. An override takes precedence over the policy."""

from webhook.core.overrides.effects import (
    LiveOverrides,
    WindowReset,
    apply_overrides,
    list_breaker_resets,
    list_released_uids,
    list_remarks,
    list_window_resets,
    select_lasting,
)
from webhook.core.overrides.entry import (
    Grant,
    ManualBreakerState,
    Override,
    PartialModes,
    QueueState,
    QuotaReset,
    ReleasedPod,
    decode_entries,
)
from webhook.core.overrides.merging import combine, merge

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
    "apply_overrides",
    "combine",
    "decode_entries",
    "list_breaker_resets",
    "list_released_uids",
    "list_remarks",
    "list_window_resets",
    "merge",
    "select_lasting",
]
