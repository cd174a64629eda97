"""The breaker as a pure state machine: a frozen record, a transition table that is the law, and what moves it.

Every function takes the time and first lets it pass, so a record is always as if each boundary had been ticked.
"""

from enum import Enum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition
from webhook.core.breaker_triggers import EMPTY, Trip, Windows, count_outcome, count_quota_event, pass_time


class Cause(Enum):
    """What can move a breaker by itself."""

    TRIPPED = "a trigger fired"
    OPEN_FOR_PASSED = "openFor passed"
    PROBES_SUCCEEDED = "enough probes succeeded"
    PROBE_FAILED = "a probe failed"


TRANSITIONS = {
    (State.CLOSED, Cause.TRIPPED): State.OPEN,
    (State.OPEN, Cause.OPEN_FOR_PASSED): State.HALF_OPEN,
    (State.HALF_OPEN, Cause.PROBES_SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, Cause.PROBE_FAILED): State.OPEN,
}
"""The law: what is not in here cannot happen."""


class Lease(Struct, frozen=True):
    """A probe under way; from `expires_us` on it no longer holds its place."""

    uid: str
    expires_us: int


class Record(Struct, frozen=True):
    """All that is remembered of one service's breaker. `windows` fill in CLOSED, the rest in HALF_OPEN."""

    service: str
    state: State = State.CLOSED
    generation: int = 0
    since_us: int = 0
    open_until_us: int = 0
    reason: str = ""
    windows: Windows = EMPTY
    leases: tuple[Lease, ...] = ()
    successes: int = 0


class Step(NamedTuple):
    """Where a breaker stands now, and the transitions that took it there."""

    record: Record
    transitions: tuple[Transition, ...] = ()


def advance(record: Record, plan: BreakerPlan, now_us: int) -> Step:
    """Do what the time alone brings about: a trip at an interval's end, and probing once `openFor` has passed."""
    if record.state is State.CLOSED and record.windows is EMPTY:
        return Step(record)  # as nearly every Pod finds it: nothing is under way that time could end
    transitions: tuple[Transition, ...] = ()
    if record.state is State.CLOSED:
        windows, trip = pass_time(record.windows, plan, now_us)
        if trip is not None:
            record, transitions = _tripped(record, plan, trip)
        elif windows is not record.windows:
            record = replace(record, windows=windows)
    if record.state is State.OPEN and record.open_until_us <= now_us:
        probing = _move(record, Cause.OPEN_FOR_PASSED, record.open_until_us, "openFor passed")
        return Step(probing.record, transitions + probing.transitions)
    return Step(record, transitions)


def admits(record: Record, plan: BreakerPlan, now_us: int) -> bool:
    """Whether a Pod may come in: always in CLOSED, never in OPEN, while there is room for a probe in HALF_OPEN."""
    record = advance(record, plan, now_us).record
    return record.state is State.CLOSED or _has_room(record, plan, now_us)


def take_probe(record: Record, plan: BreakerPlan, now_us: int, uid: str) -> Step:
    """Let a Pod that was charged be a probe, if one is wanted. Without outcomes being charged is success."""
    record, transitions = advance(record, plan, now_us)
    if not _has_room(record, plan, now_us):
        return Step(record, transitions)
    if not plan.has_outcomes:
        return _then(transitions, _succeeded(record, plan, now_us))
    lease = Lease(uid, now_us + plan.probe_timeout_us)
    return Step(replace(record, leases=(*_live(record, now_us), lease)), transitions)


def give_back_probe(record: Record, uid: str) -> Record:
    """Free the place of a probe whose Pod never came to be."""
    leases = tuple(lease for lease in record.leases if lease.uid != uid)
    return record if len(leases) == len(record.leases) else replace(record, leases=leases)


def outcome(
    record: Record,
    plan: BreakerPlan,
    now_us: int,
    *,
    ok: bool,
    latency_us: int,
    uid: str | None = None,
    generation: int | None = None,
) -> Step:
    """Hear how one request or Pod fared. One of another generation, or one that nobody waits for, changes nothing."""
    record, transitions = advance(record, plan, now_us)
    if not plan.has_outcomes or (generation is not None and generation != record.generation):
        return Step(record, transitions)
    if record.state is State.CLOSED:
        windows = count_outcome(record.windows, plan, now_us, ok=ok, latency_us=latency_us)
        return Step(replace(record, windows=windows), transitions)
    lease = next((lease for lease in _live(record, now_us) if uid is None or lease.uid == uid), None)
    if lease is None:
        return Step(record, transitions)
    if not ok:
        failed = _move(record, Cause.PROBE_FAILED, now_us, "probe failed", now_us + plan.open_for_us)
        return _then(transitions, failed)
    settled = replace(record, leases=tuple(other for other in record.leases if other is not lease))
    return _then(transitions, _succeeded(settled, plan, now_us))


def quota_event(record: Record, plan: BreakerPlan, now_us: int, source: str) -> Step:
    """Hear that quota refused a Pod of `source`. Only CLOSED listens: a probe refused by quota proves nothing."""
    record, transitions = advance(record, plan, now_us)
    if record.state is not State.CLOSED:
        return Step(record, transitions)
    windows, trip = count_quota_event(record.windows, plan, now_us, source)
    if trip is None:
        return Step(replace(record, windows=windows), transitions)
    return _then(transitions, _tripped(record, plan, trip))


def view(record: Record, plan: BreakerPlan, now_us: int) -> BreakerView:
    """Return what callers see at `now_us`, also where nobody has moved the record that far yet."""
    record = advance(record, plan, now_us).record
    return BreakerView(
        record.state,
        record.generation,
        record.since_us,
        record.open_until_us,
        record.reason,
        len(_live(record, now_us)),
        record.successes,
    )


def restarted(record: Record) -> Record:
    """Return what remains of a breaker that the policy took away: if it comes back, it starts afresh in CLOSED."""
    fresh = Record(record.service, generation=record.generation)
    return record if record == fresh else replace(fresh, generation=record.generation + 1)


def _has_room(record: Record, plan: BreakerPlan, now_us: int) -> bool:
    if record.state is not State.HALF_OPEN:
        return False
    # One more at least: where a new policy lowered `probes` to what has succeeded already, that one closes it.
    wanted = max(plan.probes - record.successes, 1)
    return len(_live(record, now_us)) < wanted


def _live(record: Record, now_us: int) -> tuple[Lease, ...]:
    if not record.leases:
        return ()
    return tuple(lease for lease in record.leases if lease.expires_us > now_us)


def _succeeded(record: Record, plan: BreakerPlan, now_us: int) -> Step:
    successes = record.successes + 1
    if successes < plan.probes:
        return Step(replace(record, successes=successes))
    return _move(record, Cause.PROBES_SUCCEEDED, now_us, f"{successes} probe{'s' * (successes > 1)} succeeded")


def _tripped(record: Record, plan: BreakerPlan, trip: Trip) -> Step:
    return _move(record, Cause.TRIPPED, trip.at_us, trip.reason, trip.at_us + plan.open_for_us)


def _move(record: Record, cause: Cause, at_us: int, reason: str, open_until_us: int = 0) -> Step:
    """Enter the state that the law prescribes, with nothing left of the former one but its generation."""
    new = TRANSITIONS[record.state, cause]
    generation = record.generation + 1
    moved = Record(record.service, new, generation, at_us, open_until_us, reason)
    return Step(moved, (Transition(record.service, record.state, new, at_us, reason, generation),))


def _then(before: tuple[Transition, ...], step: Step) -> Step:
    return Step(step.record, before + step.transitions) if before else step
