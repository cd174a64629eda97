"""What goes to the script and comes back: plans and requests as lists, results as receipts and looks."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from webhook.core.breaker import BreakerPlan, BreakerView, State, Transition
from webhook.core.quota import HOUR_US, LARGEST_EXACT, Acquire, Cost, CounterPlan, Receipt, Refusal, Use, all_free_at_us
from webhook.core.stanzas import Mode
from webhook.ports import Outcome

_DAY_MS = 86_400_000
_REFUSALS = {1: Refusal.BREAKER, 2: Refusal.QUOTA}
_FIGURES = 3
"""Of each limit: used, asked, and from when it fits."""
_NEVER = -1
_STATES = {state.value: state for state in State}
_encode = msgspec.msgpack.Encoder().encode


def packed_plan(plan: CounterPlan) -> Raw:
    """Return a plan as the script reads it; worked out once a policy."""
    windows = [[window.seconds, [[limit.counts, limit.hard] for limit in window.limits]] for window in plan.windows]
    longest_ms = max((window.seconds for window in plan.windows), default=0) * 1000
    breaker = plan.breaker
    lasts_ms = (breaker.open_for_us + breaker.probe_timeout_us) // 1000 if breaker else 0
    return Raw(
        _encode(
            [
                windows,
                plan.quota_mode is Mode.ENFORCE,
                _breaker(breaker) if breaker else False,
                plan.breaker_mode is Mode.ENFORCE,
                plan.remember_us,
                # An hour more than anything in it counts.
                longest_ms * 66 // 64 + HOUR_US // 1000,
                lasts_ms + _DAY_MS,
            ]
        )
    )


def _breaker(plan: BreakerPlan) -> list[Any]:
    errors, latency, quota = plan.error_rate, plan.latency, plan.quota
    return [
        plan.has_outcomes,
        [errors.percent, errors.interval_us, errors.consecutive, errors.minimum, errors.reason_head]
        if errors
        else False,
        [latency.mean_us, latency.interval_us, latency.consecutive, latency.minimum, latency.reason_head]
        if latency
        else False,
        [quota.count, quota.within_us, quota.by_controller, quota.reason()] if quota else False,
        plan.open_for_us,
        plan.probes,
        plan.probe_timeout_us,
    ]


def packed_acquire(request: Acquire, scope: str) -> list[Any]:
    old = False if request.resize_from is None else _exact(request.resize_from)
    return ["acquire", scope, request.uid, _exact(request.cost), request.event_source, request.peek, old]


def _exact(cost: Cost) -> Mapping[str, int]:
    """Cut what is above any limit that there can be: the script counts in doubles."""
    if not cost or max(cost.values()) <= LARGEST_EXACT:
        return cost
    return {resource: min(amount, LARGEST_EXACT) for resource, amount in cost.items()}


def packed_outcome(outcome: Outcome) -> list[Any]:
    uid = False if outcome.uid is None else outcome.uid
    generation = False if outcome.generation is None else outcome.generation
    return ["outcome", [outcome.ok, outcome.latency_us, uid, generation]]


def receipt(plan: CounterPlan, result: Sequence[Any]) -> Receipt:
    at_us, refused, would, charged, repeated, figures, view, moves = result
    judged = uses(plan, figures)
    over: tuple[Use, ...] = ()
    if refused or would:
        over = tuple([use for use in judged if use.free_at_us != 0])
    if charged:
        judged = tuple([Use(use.window, use.resource, use.used + use.asked, use.hard, use.asked) for use in judged])
    return Receipt(
        at_us=at_us,
        refused=_REFUSALS.get(refused),
        would_refuse=tuple([guard for bit, guard in _REFUSALS.items() if would & bit]) if would else (),
        charged=charged,
        repeated=repeated,
        uses=judged,
        over=over,
        free_at_us=all_free_at_us(over),
        breaker=breaker_view(view),
        transitions=transitions(plan, moves) if moves else (),
    )


def uses(plan: CounterPlan, figures: Sequence[int]) -> tuple[Use, ...]:
    """Return every limit of a plan with its figures, which come in the same order."""
    found = []
    at = 0
    for window in plan.windows:
        for limit in window.limits:
            used, asked, free_at_us = figures[at : at + _FIGURES]
            moment = None if free_at_us == _NEVER else free_at_us
            found.append(Use(window.name, limit.resource, used, limit.hard, asked, moment))
            at += _FIGURES
    return tuple(found)


def breaker_view(view: Sequence[Any] | bool) -> BreakerView | None:  # noqa: FBT001  false stands for none there
    if isinstance(view, bool):
        return None
    state, generation, since_us, open_until_us, reason, leased, succeeded = view
    return BreakerView(_STATES[state], generation, since_us, open_until_us, reason, leased, succeeded)


def transitions(plan: CounterPlan, moves: Sequence[Sequence[Any]]) -> tuple[Transition, ...]:
    return tuple(
        Transition(plan.service, State(old), State(new), at_us, reason, generation)
        for old, new, at_us, reason, generation in moves
    )
