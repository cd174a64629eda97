"""Whom the controller tells what it found, and how often it looks."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.breaker import Transition

NEVER_CREATED = "NeverCreated"
NAME_TAKEN = "NameTaken"

OVERFLOW = "overflow"
"""Why a Pod has no outcome: there are too many of them."""


@dataclass(frozen=True, slots=True)
class ControllerReports:
    """Each is told of one event, except `on_drift` and `on_watched`, which are told how things stand."""

    on_refunded: Callable[[str, str], None]
    """A service, and why its Pod never came to be: `NEVER_CREATED` or `NAME_TAKEN`."""
    on_unproven: Callable[[str], None]
    """Nobody can tell whether a Pod of the service came to be: it is not refunded."""
    on_charged_afterwards: Callable[[str], None]
    """A Pod of the service came in uncounted."""
    on_raised: Callable[[str], None]
    """A Pod of the service takes more than it was ever charged for."""
    on_label_ignored: Callable[[], None]
    """A Pod names a service that is not believed."""
    on_drift: Callable[[str, int], None]
    """By how many Pods the store differed from the cluster in what stands for a service."""
    on_watched: Callable[[int], None]
    """How many Pods of services there are."""
    on_started: Callable[[str, str], None]
    """A breaker was told how a Pod of the service started: a `start_outcome.StartResult`."""
    on_start_dropped: Callable[[str, str], None]
    """A Pod of the service has no outcome: a `Settlement`, or `OVERFLOW`."""
    on_excused: Callable[[str, int], None]
    """So many controllers have lost Pods of the service to the cluster: their quota events are not heard."""
    on_transition: Callable[[Transition], None]
    """A breaker has changed its state."""


@dataclass(frozen=True, slots=True)
class ControllerTiming:
    """All times and bounds in one place."""

    round_seconds: float = 1.0
    """Between two looks for overdue Pods, for a new policy, and for what is to be told."""
    overdue_seconds: float = 60.0
    """A Pod that was charged and not seen for so long is looked for: an API request lives no longer than a minute."""
    skew_seconds: float = 5.0
    """How far the clocks of store, leader and former leader may be apart."""
    repair_seconds: float = 60.0
    first_retry_seconds: float = 0.5
    longest_retry_seconds: float = 10.0
    """Before a service is told again that its store gave no answer for."""
    overdue_max: int = 1000
    """Looked at in one round, of one tag."""
    tag_seconds: float = 0.01
    """No more than 100 tags are asked for overdue Pods in a second."""
    looks_per_round: int = 50
    looks_at_once: int = 8
