"""Callbacks for the controller's findings, and its intervals and bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from webhook.core.breaker import Transition
from webhook.core.quota import UnseenPod

NEVER_CREATED = "NeverCreated"
NAME_TAKEN = "NameTaken"

OVERFLOW = "overflow"
"""Reason for dropping an outcome: the queue was full."""


@dataclass(frozen=True, slots=True)
class ControllerReports:
    """Callbacks, each for one event, except `on_drift`, `on_pool_drift` and `on_watched`, which report a value."""

    on_refunded: Callable[[str, UnseenPod, str], None]
    """A charged Pod of the service was refunded; the cause is `NEVER_CREATED` or `NAME_TAKEN`."""
    on_unproven: Callable[[str], None]
    """A charge whose Pod creation cannot be verified; not refunded."""
    on_charged_afterwards: Callable[[str], None]
    """A Pod of the service had not been charged at admission, and is now."""
    on_raised: Callable[[str], None]
    """A Pod of the service uses more than it was charged for; the charge was raised."""
    on_label_ignored: Callable[[], None]
    """A Pod's service label was ignored: the policy does not assign it to that service."""
    on_drift: Callable[[str, int], None]
    """Number of live Pods of the service in which the store differed from the cluster."""
    on_pool_drift: Callable[[Mapping[str, int]], None]
    """By pool: number of live Pods in which the store differed from the cluster."""
    on_watched: Callable[[int], None]
    """Number of Pods of all services."""
    on_started: Callable[[str, str], None]
    """A breaker counted the start of a Pod of the service: a `start_outcome.StartResult`."""
    on_start_dropped: Callable[[str, str], None]
    """The start of a Pod of the service was not counted: a `Settlement`, or `OVERFLOW`."""
    on_quota_events_suppressed: Callable[[str, int], None]
    """Number of workload controllers whose quota events are suppressed: the cluster has disrupted their Pods."""
    on_transition: Callable[[Transition], None]
    """A breaker changed its state."""


@dataclass(frozen=True, slots=True)
class ControllerTiming:
    """Intervals and bounds of the controller."""

    round_seconds: float = 1.0
    """Interval of the checks for overdue Pods, for a new policy, and for pending sightings."""
    overdue_seconds: float = 60.0
    """A Pod that was charged and not seen for this time is looked up: an API request lasts at most a minute."""
    skew_seconds: float = 5.0
    """Largest assumed difference between the clocks of the store, this leader and the former one."""
    loss_seconds: float = 2.0
    """Until a loss of the store's data has been noticed: a Pod is refunded so long after its lookup at the earliest."""
    repair_seconds: float = 60.0
    first_retry_seconds: float = 0.5
    retry_seconds_max: float = 10.0
    """Retry delays after the store did not answer for a service."""
    overdue_max: int = 1000
    """Overdue Pods per tag and round."""
    tag_seconds: float = 0.01
    """Limits queries for overdue Pods to 100 tags per second."""
    lookups_per_round_max: int = 50
    concurrent_lookups_max: int = 8
