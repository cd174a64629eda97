"""Encoding of plans and requests for the script, and decoding of its results."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition, TransitionCause
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy_spec import Mode
from webhook.core.quota import (
    HOUR_US,
    LARGEST_EXACT,
    Cost,
    CounterPlan,
    DeniedBy,
    Holder,
    Receipt,
    StandingPlan,
    Use,
    WindowPlan,
    all_free_at_us,
)

_DAY_MS = 86_400_000
_ARRAY_16, _ARRAY_32 = 16, 1 << 16
"""The lengths from which MessagePack arrays have longer headers."""
_REFUSALS = {1: DeniedBy.BREAKER, 2: DeniedBy.QUOTA}
_NEVER = -1
_MOVES_AT = {"acquire": 8, "resize": 8, "started": 1, "record_outcomes": 0, "apply_override": 0, "tick": 0}
_STATES = {state.value: state for state in State}
_NEW = BreakerView(State.CLOSED, 0, 0)
_encode = msgspec.msgpack.Encoder().encode
_encode_text = msgspec.json.Encoder().encode


def stream(values: Sequence[Any]) -> bytes:
    """Return values one after another: the script unpacks them as a list of arguments."""
    count = len(values)
    return _encode(values)[1 if count < _ARRAY_16 else 3 if count < _ARRAY_32 else 5 :]  # without its header


def packed_list(values: Sequence[Any]) -> Raw:
    """Return values as one argument, which the script unpacks as a list.

    It is a MessagePack string: Redis' MessagePack does not know the binary type.
    """
    packed = stream(values)
    return Raw(b"\xdb" + len(packed).to_bytes(4) + packed)


def packed_plan(plan: CounterPlan) -> bytes:
    """Return what the script reads of a plan in each call; computed once per plan."""
    pooled = plan.pool.windows if plan.pool else ()
    longest_ms = max((window.seconds for window in (*plan.windows, *pooled)), default=0) * 1000
    breaker = plan.breaker
    errors, latency = (breaker.error_rate, breaker.latency) if breaker else (None, None)
    return stream(
        (
            _windows(plan.windows),
            _windows(pooled) if pooled else False,
            plan.quota_mode is Mode.ENFORCE,
            plan.breaker_mode is Mode.ENFORCE,
            plan.remember_us,
            # The key expires an hour after the last charge in it has left its window.
            longest_ms * 66 // 64 + HOUR_US // 1000,
            plan.service,
            plan.fleet,
            packed_list([_encode_text([_counted(plan.windows), _counted(pooled)]).decode()]),
            _standing(plan.standing) if plan.standing else False,
            breaker is not None,
            breaker is not None and breaker.has_outcomes,
            breaker is not None and breaker.forcing is not None,
            breaker is not None and breaker.open_max is not None,
            breaker is not None and breaker.quota is not None,
            errors.interval_us if errors else False,
            latency.interval_us if latency else False,
        )
    )


def packed_details(plan: CounterPlan, cluster: str, channel: str) -> bytes:
    """Return what the script reads of a plan in few calls. `channel` is where transitions are published."""
    breaker = plan.breaker
    lasts_ms = (breaker.open_for_us + breaker.probe_timeout_us) // 1000 if breaker else 0
    quota = breaker.quota if breaker else None
    return stream(
        (
            lasts_ms + _DAY_MS,
            cluster,
            plan.tag,
            channel,
            (quota.count, quota.within_us, quota.by_controller, quota.reason()) if quota else False,
            _rules(breaker) if breaker else False,
        )
    )


def _windows(windows: Sequence[WindowPlan]) -> Raw:
    """Return window, resource and limit of each limit, window by window."""
    triples = [(window.seconds, limit.counts, limit.hard) for window in windows for limit in window.limits]
    return packed_list([value for triple in triples for value in triple])


def _counted(windows: Sequence[WindowPlan]) -> list[Any]:
    """Return the windows that a Pod is charged in, as its record has them."""
    return [[window.seconds, [limit.counts for limit in window.limits]] for window in windows]


def _standing(plan: StandingPlan) -> list[Any]:
    return [
        [limit.counts, limit.hard, min(surge, LARGEST_EXACT)]
        for limit, surge in zip(plan.limits, plan.surge, strict=True)
    ]


def _rules(plan: BreakerPlan) -> list[Any]:
    errors, latency = plan.error_rate, plan.latency
    return [
        plan.has_outcomes,
        [errors.percent, errors.interval_us, errors.consecutive, errors.minimum, errors.reason_head]
        if errors
        else False,
        [latency.mean_us, latency.interval_us, latency.consecutive, latency.minimum, latency.reason_head]
        if latency
        else False,
        plan.open_for_us,
        plan.probes,
        plan.probe_timeout_us,
        plan.degrades,
        False if plan.open_max is None else plan.open_max,
        [plan.forcing.state, plan.forcing.until_us, plan.forcing.reason] if plan.forcing else False,
    ]


def cost_text(cost: Cost) -> str:
    """Return a cost as records have it: the script parses each distinct text once per call."""
    if cost and max(cost.values()) > LARGEST_EXACT:
        cost = exact(cost)
    return _encode_text(cost).decode()


def exact(cost: Cost) -> Cost:
    """Clip amounts above any possible limit: the script counts in doubles."""
    return {resource: min(amount, LARGEST_EXACT) for resource, amount in cost.items()}


def packed_outcomes(outcomes: Sequence[Outcomes]) -> list[Any]:
    """Return outcomes as the script reads them; the records of those with a uid are keys of their own, in order."""
    packed, records = [], 0
    for reported in outcomes:
        records += reported.uid is not None
        packed.append(
            [
                reported.succeeded,
                reported.failed,
                reported.latency_us,
                _or_false(reported.uid),
                _or_false(reported.generation),
                reported.age_us,
                records if reported.uid is not None else 0,
            ]
        )
    return packed


def _or_false(value: str | int | None) -> str | int | bool:
    return False if value is None else value


def packed_view(view: BreakerView) -> list[Any]:
    return [
        view.state,
        view.generation,
        view.since_us,
        view.open_until_us,
        view.reason,
        view.probes_leased,
        view.probes_succeeded,
        view.tripped_at_us,
        view.tripped_by,
        view.early,
        view.failed,
        view.passed,
        view.alone,
    ]


def receipt(plan: CounterPlan, result: Sequence[Any], cost: Cost) -> Receipt:
    """Return a receipt as the script has packed it; `cost` is what was asked for."""
    at_us, refused, would, charged, repeated, used, figures, view, moves, _ = result
    if not (refused or would or moves):
        known = _NEW if view is True else breaker_view(view)
        return Receipt(at_us, None, (), charged, repeated, tuple(used), (), 0, breaker=known)
    over = tuple([_over(plan, figure, cost) for figure in figures])
    return Receipt(
        at_us=at_us,
        refused=_REFUSALS.get(refused),
        would_refuse=tuple([guard for bit, guard in _REFUSALS.items() if would & bit]),
        charged=charged,
        repeated=repeated,
        used=tuple(used),
        over=over,
        free_at_us=all_free_at_us(over),
        breaker=breaker_view(view),
        transitions=transitions(plan, moves) if moves else (),
    )


def _over(plan: CounterPlan, figure: Sequence[int], cost: Cost) -> Use:
    number, used, asked, free_at_us, surge = figure
    if asked == LARGEST_EXACT:  # the script was asked for a clipped amount
        asked = cost[plan.limits[number - 1][2].counts]
    return _use(plan, number - 1, used, asked, free_at_us, surge)


def _use(plan: CounterPlan, index: int, used: int, asked: int, free_at_us: int, surge: int = 0) -> Use:
    holder, window, limit = plan.limits[index]
    name = plan.pool.name if holder is Holder.POOL and plan.pool else ""
    moment = None if free_at_us == _NEVER else free_at_us
    return Use(window.name, limit.resource, used, limit.hard, asked, moment, of=holder, name=name, surge=surge)


def uses(plan: CounterPlan, holders: Collection[Holder], figures: Sequence[int]) -> tuple[Use, ...]:
    """Return every limit of these holders with its figures, which are in the same order.

    Each has two: the use, and the time from which one more fits; for live Pods, the surge instead of the time.
    """
    indices = [index for index, (of, _, _) in enumerate(plan.limits) if of in holders]
    pairs = zip(figures[::2], figures[1::2], strict=True)
    return tuple(
        _use(plan, index, used, 1, 0, more)
        if plan.limits[index][0] is Holder.STANDING
        else _use(plan, index, used, 1, more)
        for index, (used, more) in zip(indices, pairs, strict=True)
    )


def breaker_view(view: Any) -> BreakerView | None:
    """Return a view as the script has packed it: true of a breaker without a record."""
    if view is True:
        return _NEW
    if not view:  # `false` in Lua
        return None
    state, generation, since_us, open_until_us, reason, leased, succeeded, *tripped = view
    seen = BreakerView(_STATES[state], generation, since_us, open_until_us, reason, leased, succeeded)
    if not tripped:
        return seen  # it has never tripped, and the store made its newest transition
    at_us, by, early, failed, *lineage = tripped
    passed, alone = lineage or (0, 0)
    of_trip = {"tripped_at_us": at_us, "tripped_by": by, "early": early, "failed": tuple(failed)}
    return replace(seen, **of_trip, passed=passed, alone=alone)


def moves(kind: str, result: Sequence[Any]) -> Sequence[Any]:
    """Return the transitions in the result of any operation."""
    index = _MOVES_AT.get(kind, len(result))
    return result[index] or () if index < len(result) else ()


def charged_us(kind: str, result: Sequence[Any]) -> int:
    """Return when an operation has charged a new Pod, by its result; 0 if it has not."""
    return int(result[0]) if kind == "acquire" and result[3] else 0


def transitions(plan: CounterPlan, moves: Sequence[Sequence[Any]]) -> tuple[Transition, ...]:
    return tuple(
        Transition(plan.service, State(old), State(new), at_us, reason, generation, TransitionCause(cause))
        for old, new, at_us, reason, generation, cause in moves
    )
