"""Queue document of the leader: the depth of each service's queue, and waiting Pods in the order of their release."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from webhook.core.admission.denials import format_utc
from webhook.core.quota import CounterPlan

ROWS_MAX = 1_000
"""Most rows of one document."""
EXPIRED, DROPPED = "ExpiredInQueue", "DroppedFromQueue"
"""Reasons of Events about Pods whose wait has ended without a release."""
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


class WaitCause(StrEnum):
    """Cause for which a Pod waits."""

    PAUSED = "Paused"
    BREAKER_OPEN = "BreakerOpen"
    QUOTA_EXCEEDED = "QuotaExceeded"
    LIVE_PODS = "LivePods"
    """Limits on live Pods alone have no room: it is unknown when others end."""
    STORE_UNAVAILABLE = "StoreUnavailable"
    """The store gives no answer: which limit has no room is not known."""
    BEHIND = "Behind"
    """Others are released before it."""
    GROUP_INCOMPLETE = "GroupIncomplete"
    """Members of its group are missing."""
    RELEASE_FAILS = "ReleaseFails"
    """The API server did not remove its gate, or did not delete the Pod when it had expired."""


def _format_key(field: str) -> str:
    """Return the key of a field in the document."""
    first, *others = field.split("_")
    return "class" if field == "sla_class" else first + "".join(map(str.title, others))


class FailingPods(Struct, frozen=True):
    """Waiting Pods of one service whose release failed for one reason; `why` is the answer about the first of them."""

    reason: str
    """One of `errors.GATE_REASONS`."""
    pods: int
    why: str


class WaitingGroups(Struct, frozen=True):
    """Groups of one service that wait: `complete` ones for room, the others for members or for their size."""

    complete: int = 0
    incomplete: int = 0


class QueueDepth(Struct, frozen=True, rename=_format_key):
    """Waiting Pods of one service; `paused` says until when and why nothing is released, None if it is.

    `groups`: None if its Pods wait singly.
    """

    service: str
    sla_class: str
    waiting: int
    oldest_seconds: int
    paused: str | None = None
    failing: tuple[FailingPods, ...] = ()
    groups: WaitingGroups | None = None


class QueueRow(Struct, frozen=True, rename=_format_key):
    """One waiting Pod. Its place is that in `queue`, its pool or else its service."""

    queue: str
    place: int
    sla_class: str
    class_place: int
    """Its place among the waiting Pods of its class, of which there are `class_waiting`."""
    class_waiting: int
    service: str
    namespace: str
    name: str
    uid: str
    since: str
    waiting_seconds: int
    lifted: bool
    """Ageing has lifted it: it takes part in the share of a higher class."""
    owner: str
    """Its controller, as KIND/NAME; "" without one."""
    cause: str
    """A WaitCause, or one that only a newer process has."""
    why: str
    expected_at: str | None
    """When there is room for it and those before it, by the present counters; None if that is unknown."""
    expires_at: str | None
    not_before: str | None = None
    """When a pause, an open breaker or a wait for the store ends, before which it is not released; None without one."""

    @property
    def place_text(self) -> str:
        """Return its place in its class, such as `7th of 23 in gold`."""
        return f"{format_ordinal(self.class_place)} of {self.class_waiting} in {self.sla_class}"

    @property
    def early_end(self) -> str:
        """Return that it expires before its turn; "" if it does not, or if that is unknown."""
        turn = self.expected_at or self.not_before
        if turn is None or self.expires_at is None or self.expires_at >= turn:
            return ""
        return f"expires at {self.expires_at[11:19]}Z, before its turn"

    @property
    def summary(self) -> str:
        """Return its place, and from when it may be released; or why that is unknown."""
        moment = f"may go from {self.expected_at[11:19]}Z" if self.expected_at is not None else self.why
        return f"{self.place_text}; {f'{self.early_end}: ' if self.early_end else ''}{moment}"


class QueueDocument(Struct, frozen=True, rename="camel"):
    """The queue as its leader knows it. Another process says in `waits_for` who leads, and knows no Pods."""

    leads: bool
    time: str
    waits_for: str = ""
    waiting: int = 0
    matching: int = 0
    """Number of waiting Pods that match the query; `pods` has the first of them."""
    services: tuple[QueueDepth, ...] = ()
    pods: tuple[QueueRow, ...] = ()


def format_ordinal(number: int) -> str:
    """Return a number as 1st, 2nd, 3rd, 4th, 11th, 21st."""
    if number // 10 % 10 == 1:
        return f"{number}th"
    return f"{number}{_ENDINGS.get(number % 10, 'th')}"


def describe_pause(plan: CounterPlan) -> str:
    """Return until when and why a service's queue is paused; "" if it is not."""
    pause = plan.queue.pause if plan.queue is not None else None
    return (
        ""
        if pause is None
        else f"until {format_utc(pause.until_us)}: {pause.reason}{f' ({pause.by})' if pause.by else ''}"
    )


def describe_expiry(max_wait_us: int, *, is_kept: bool) -> str:
    """Return that a Pod has waited for too long, and which rule applies."""
    rule = "Keep" if is_kept else "Delete"
    return f"it has waited longer than queue.maxWait, {max_wait_us // 1_000_000} s, and queue.whenExpired is {rule}"


def format_duration(seconds: int) -> str:
    """Return a duration such as 40s, 3m or 2h."""
    for unit, name in ((3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{round(seconds / unit)}{name}"
    return f"{seconds}s"


def count_by_class(depths: Iterable[QueueDepth]) -> dict[str, tuple[int, int]]:
    """Return how many Pods wait in each class, and the oldest age in seconds, without empty classes."""
    found: dict[str, tuple[int, int]] = {}
    for depth in depths:
        if depth.waiting:
            waiting, oldest = found.get(depth.sla_class, (0, 0))
            found[depth.sla_class] = (waiting + depth.waiting, max(oldest, depth.oldest_seconds))
    return found


def render_depths(depths: Sequence[QueueDepth] | None) -> dict[str, Any] | None:
    """Return the queues in a status document, without idle ones; None if this process does not know them."""
    if depths is None:
        return None
    classes = [
        {"class": name, "waiting": waiting, "oldestSeconds": oldest}
        for name, (waiting, oldest) in count_by_class(depths).items()
    ]
    return {"classes": classes, "services": [to_builtins(depth) for depth in depths if depth.waiting or depth.paused]}
