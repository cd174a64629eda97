"""Stored record of one service's breaker, and the view of it that callers see."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.states import BreakerView, State, Transition
from webhook.core.breaker.trip_detection import EMPTY, Windows


class ProbeLease(Struct, frozen=True):
    """A pending probe. It expires at `expires_us`; its outcome counts for `generation`."""

    uid: str
    expires_us: int
    generation: int


class Excuse(NamedTuple):
    """A source whose quota events are ignored until a moment; `EVERY_SOURCE` if there are too many sources to list."""

    source: str
    until_us: int


EVERY_SOURCE = "*"


class Record(Struct, frozen=True):
    """One breaker. `windows` is used in CLOSED; `leases`, `successes` and `early`, the early probes so far, elsewhere.

    `failed` lists the sources that contributed to the trip; empty unless all of them are known.
    """

    service: str
    state: State = State.CLOSED
    generation: int = 0
    since_us: int = 0
    open_until_us: int = 0
    reason: str = ""
    windows: Windows = EMPTY
    leases: tuple[ProbeLease, ...] = ()
    successes: int = 0
    failed: tuple[str, ...] = ()
    early: int = 0
    tripped_at_us: int = 0
    tripped_by: str = ""
    reset_us: int = 0
    """Time of the last manual reset: earlier outcomes do not count."""
    asked_us: int = 0
    """Time of the newest reset request, by the clock of the requester."""
    excused: tuple[Excuse, ...] = ()
    passed: int = 0
    alone: int = 0
    """Both as in `BreakerView`."""

    @property
    def decided(self) -> int:
        return self.generation - self.passed


class BreakerStep(NamedTuple):
    """The breaker's next record, and the transitions that led to it."""

    record: Record
    transitions: tuple[Transition, ...] = ()


class BreakerEnvironment(NamedTuple):
    """Inputs of a breaker from outside its own record.

    `late_us`: grace period for late outcomes after the end of an interval.
    `opened`: number of open breakers among those that breakerGuard counts.
    """

    late_us: int = 0
    opened: Callable[[], int] = lambda: 0


ALONE = BreakerEnvironment()

SHUT = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2, State.FORCED_CLOSED: 3, State.FORCED_OPEN: 4}
"""Restrictiveness by state; forced states rank above all others."""


def is_newer_view(one: BreakerView, other: BreakerView) -> bool:
    """Whether the first of two views that a store has written is the newer one.

    With the same generation, a store takes a proposal that has more decisions or is more restrictive.
    """
    return (one.generation, one.decided, SHUT[one.state]) > (other.generation, other.decided, SHUT[other.state])


def has_moved(before: Record, after: Record) -> bool:
    """Whether subscribers must be notified: another state, generation or number of decisions, or another override.

    The tag's clock does not go back behind such a change.
    """
    return before is not after and _list_notified_fields(before) != _list_notified_fields(after)


def _list_notified_fields(record: Record) -> tuple[int, int, State, int, str]:
    return record.generation, record.passed, record.state, record.open_until_us, record.reason


def list_live_leases(record: Record, now_us: int) -> tuple[ProbeLease, ...]:
    if not record.leases:
        return ()
    return tuple(lease for lease in record.leases if lease.expires_us > now_us)


def find_forced_state(record: Record, plan: BreakerPlan, now_us: int) -> State | None:
    """Return the forced state, if any. The plan takes precedence: the record may not have applied it yet."""
    if plan.forcing is not None and now_us < plan.forcing.until_us:
        return plan.forcing.state
    return record.state if record.state.is_forced else None


def count_early_left(record: Record, plan: BreakerPlan) -> int:
    """Return how many Pods may still probe before `openFor` has passed; 0 unless all failed sources are known."""
    return max(0, plan.probes - record.early) if record.state is State.OPEN and record.failed else 0


def build_view(record: Record, plan: BreakerPlan, now_us: int) -> BreakerView:
    """Return what callers see of a record that was advanced to `now_us`."""
    held = find_forced_state(record, plan, now_us)
    if held is None:
        return _build_state_view(record, record.state, plan, now_us)
    view = _build_state_view(record, held, plan, now_us)
    forcing = plan.forcing
    if forcing is None or now_us >= forcing.until_us:
        return view
    since_us = record.since_us if record.state is held else now_us
    return BreakerView(
        held,
        record.generation,
        since_us,
        forcing.until_us,
        forcing.reason,
        tripped_at_us=record.tripped_at_us,
        tripped_by=record.tripped_by,
        passed=record.passed,
        alone=record.alone,
    )


def _build_state_view(record: Record, state: State, plan: BreakerPlan, now_us: int) -> BreakerView:
    early = count_early_left(record, plan)
    return BreakerView(
        state,
        record.generation,
        record.since_us,
        open_until_us=record.open_until_us,
        reason=record.reason,
        probes_leased=len(list_live_leases(record, now_us)),
        probes_succeeded=record.successes,
        tripped_at_us=record.tripped_at_us,
        tripped_by=record.tripped_by,
        early=early,
        failed=record.failed if early else (),
        passed=record.passed,
        alone=record.alone,
    )


def from_view(service: str, plan: BreakerPlan, view: BreakerView) -> Record:
    """Return a record rebuilt from a view, as far as the view has its fields."""
    return Record(
        service,
        view.state,
        view.generation,
        view.since_us,
        view.open_until_us,
        view.reason,
        successes=view.probes_succeeded,
        failed=view.failed,
        early=max(0, plan.probes - view.early) if view.state is State.OPEN else 0,
        tripped_at_us=view.tripped_at_us,
        tripped_by=view.tripped_by,
        passed=view.passed,
        alone=view.alone,
    )
