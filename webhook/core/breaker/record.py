"""All that is remembered of one service's breaker, and what callers see of it."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.states import BreakerView, State, Transition
from webhook.core.breaker.triggers import EMPTY, Windows


class ProbeLease(Struct, frozen=True):
    """A probe under way; from `expires_us` on it no longer holds its place. Its outcome is of `generation`."""

    uid: str
    expires_us: int
    generation: int


class Excuse(NamedTuple):
    """Whose quota events are not heard until a moment; of `EVERYBODY` where there are too many to tell apart."""

    source: str
    until_us: int


EVERYBODY = "*"


class Record(Struct, frozen=True):
    """One breaker. `windows` fill in CLOSED; leases, successes and `early`, how many probed early, belong to the rest.

    `failed` are the sources that took part in what tripped it, nobody where that is not known of all of them.
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
    """When it was last reset by hand: what was had before does not count."""
    asked_us: int = 0
    """The newest moment for which a reset was asked, by the clock of whoever asked."""
    excused: tuple[Excuse, ...] = ()
    passed: int = 0
    alone: int = 0
    """Both as `BreakerView` has them."""

    @property
    def decided(self) -> int:
        return self.generation - self.passed


class BreakerStep(NamedTuple):
    """Where a breaker stands now, and the transitions that took it there."""

    record: Record
    transitions: tuple[Transition, ...] = ()


class BreakerEnvironment(NamedTuple):
    """What a breaker needs to know of the world beside it.

    `late_us`: how long an interval that has ended is waited for, because its outcomes are still on their way.
    `opened`: how many of the breakers that breakerGuard counts are open.
    """

    late_us: int = 0
    opened: Callable[[], int] = lambda: 0


ALONE = BreakerEnvironment()

SHUT = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2, State.FORCED_CLOSED: 3, State.FORCED_OPEN: 4}
"""How shut it is; what is by hand holds over the rest."""


def outranks(one: BreakerView, other: BreakerView) -> bool:
    """Whether of two accounts of one lineage the first is newer: its generation is higher, or on a tie more shut."""
    return (one.generation, SHUT[one.state]) > (other.generation, SHUT[other.state])


def moved(before: Record, after: Record) -> bool:
    """Whether it stands otherwise to all who listen: in another state or generation, or held otherwise by a hand."""
    return before is not after and _stands(before) != _stands(after)


def _stands(record: Record) -> tuple[int, State, int, str]:
    return record.generation, record.state, record.open_until_us, record.reason


def live_leases(record: Record, now_us: int) -> tuple[ProbeLease, ...]:
    if not record.leases:
        return ()
    return tuple(lease for lease in record.leases if lease.expires_us > now_us)


def forced(record: Record, plan: BreakerPlan, now_us: int) -> State | None:
    """Return the state that a hand holds it in: the plan's word first, which the record may not have heard yet."""
    if plan.forcing is not None and now_us < plan.forcing.until_us:
        return plan.forcing.state
    return record.state if record.state.is_forced else None


def early_left(record: Record, plan: BreakerPlan) -> int:
    """Return how many Pods may yet probe before `openFor` has passed: only where all who failed are known."""
    return max(0, plan.probes - record.early) if record.state is State.OPEN and record.failed else 0


def shown(record: Record, plan: BreakerPlan, now_us: int) -> BreakerView:
    """Return what callers see of a record that time has been passed in."""
    held = forced(record, plan, now_us)
    if held is None:
        return _view(record, record.state, plan, now_us)
    view = _view(record, held, plan, now_us)
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


def _view(record: Record, state: State, plan: BreakerPlan, now_us: int) -> BreakerView:
    early = early_left(record, plan)
    return BreakerView(
        state,
        record.generation,
        record.since_us,
        record.open_until_us,
        record.reason,
        len(live_leases(record, now_us)),
        record.successes,
        record.tripped_at_us,
        record.tripped_by,
        early,
        record.failed if early else (),
        record.passed,
        record.alone,
    )


def from_view(service: str, plan: BreakerPlan, view: BreakerView) -> Record:
    """Return as much of a record as can be known from what was seen of it."""
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
