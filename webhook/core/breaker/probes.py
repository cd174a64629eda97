"""Probes: admission of Pods while a breaker is not CLOSED, probe leases, and their outcomes."""

from msgspec.structs import replace

from webhook.core.breaker.advance import advance
from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import (
    ALONE,
    BreakerEnvironment,
    BreakerStep,
    ProbeLease,
    Record,
    count_early_left,
    find_forced_state,
    list_live_leases,
)
from webhook.core.breaker.states import State, TransitionCause
from webhook.core.breaker.transitions import move, prepend_transitions
from webhook.core.breaker.trip_detection import keep_known_sources
from webhook.core.kubernetes.controllers import CONTROLLER


def can_admit(
    record: Record, plan: BreakerPlan, now_us: int, source: str = "", environment: BreakerEnvironment = ALONE
) -> bool:
    """Whether a Pod of `source` is admitted: always in CLOSED, otherwise if it can be a probe."""
    record = advance(record, plan, now_us, environment).record
    held = find_forced_state(record, plan, now_us)
    if held is not None:
        return held is State.FORCED_CLOSED
    return record.state is State.CLOSED or _has_room(record, plan, now_us, source)


def take_probe(
    record: Record, plan: BreakerPlan, now_us: int, uid: str, source: str = "", environment: BreakerEnvironment = ALONE
) -> BreakerStep:
    """Make a charged Pod a probe, if one is wanted. Without outcomes, the charge itself is the probe's success."""
    record, transitions = advance(record, plan, now_us, environment)
    if find_forced_state(record, plan, now_us) is not None or not _has_room(record, plan, now_us, source):
        return BreakerStep(record, transitions)
    early = record.early + (record.state is State.OPEN)
    if not plan.has_outcomes:
        return prepend_transitions(transitions, _count_success(replace(record, early=early), plan, now_us))
    lease = ProbeLease(uid, now_us + plan.probe_timeout_us, record.generation)
    return BreakerStep(replace(record, leases=(*record.leases, lease), early=early), transitions)


def give_back_probe(record: Record, uid: str, now_us: int) -> Record:
    """Free the lease of a probe whose Pod was never created, unless it has expired, whether that was noticed or not."""
    leases = tuple(lease for lease in record.leases if lease.uid != uid or lease.expires_us <= now_us)
    freed = len(record.leases) - len(leases)
    if not freed:
        return record
    early = record.early - freed if record.state is State.OPEN else record.early
    return replace(record, leases=leases, early=early)


def may_probe_early(source: str, failed: tuple[str, ...], left: int) -> bool:
    """Whether a Pod may be a probe in OPEN: only of a controller that did not contribute to the failures."""
    return left > 0 and source.startswith(CONTROLLER) and source not in failed


def settle(record: Record, plan: BreakerPlan, now_us: int, lease: ProbeLease, source: str, *, ok: bool) -> BreakerStep:
    """Record the outcome of a probe."""
    settled = replace(record, leases=tuple(other for other in record.leases if other is not lease))
    if ok:
        return _count_success(settled, plan, now_us)
    if record.state is State.OPEN:
        return BreakerStep(settled)  # an early probe that fails proves nothing new
    failed = keep_known_sources((*settled.failed, source) if source not in settled.failed else settled.failed)
    failed = failed if settled.failed else ()
    return move(settled, TransitionCause.PROBE_FAILED, now_us, "probe failed", now_us + plan.open_for_us, failed)


def _has_room(record: Record, plan: BreakerPlan, now_us: int, source: str) -> bool:
    if record.state is State.OPEN:
        return may_probe_early(source, record.failed, count_early_left(record, plan))
    if record.state is not State.HALF_OPEN:
        return False
    # At least one more: if a new policy lowered `probes` to the number that succeeded already, it closes the breaker.
    wanted = max(plan.probes - record.successes, 1)
    return len(list_live_leases(record, now_us)) < wanted


def _count_success(record: Record, plan: BreakerPlan, now_us: int) -> BreakerStep:
    successes = record.successes + 1
    if successes < plan.probes:
        return BreakerStep(replace(record, successes=successes))
    early = "early " if record.state is State.OPEN else ""
    return move(
        record, TransitionCause.PROBES_SUCCEEDED, now_us, f"{successes} {early}probe{'s' * (successes > 1)} succeeded"
    )
