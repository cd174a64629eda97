"""Charge of a group of Pods in one step: reference for `ports.GroupCharges`, and for the Lua script."""

from webhook.core.ledger import store_time
from webhook.core.ledger.breaker_operations import BreakerScript
from webhook.core.ledger.charge import charge_pod, compute_more_standing
from webhook.core.ledger.live_pods import LiveAmounts
from webhook.core.ledger.operations import build_receipt, find_confirmed, split_by_mode
from webhook.core.ledger.tag_state import NO_COST, TagState
from webhook.core.quota import Acquire, AcquireGroup, CounterPlan, DeniedBy, Receipt, sum_costs


def acquire_group(state: TagState, request: AcquireGroup, reading_us: int) -> Receipt:
    """Charge all members if the sum of what they ask for fits; else none of them.

    If some are charged already, the charges are `repeated`, and none is added: theirs may be older than a window.

    A breaker that is probing takes the group as one Pod: its first member is the probe. A refusal is no quota event.
    """
    plan, scope, clock = request.plan, request.plan.scope_of(request), state.find_clock(request.plan)
    clock.observe(reading_us)
    state.record_time(reading_us)
    now_us = clock.now(reading_us)
    breaker = BreakerScript(state, plan, now_us)
    new = _build_acquires(request)
    known_charges = [find_confirmed(state, pod, now_us) for pod in new]  # each is confirmed
    if any(known is not None for known in known_charges):
        used, _ = state.judge(plan, scope, NO_COST, now_us)
        known = Receipt(now_us, repeated=True, used=tuple(used), breaker=breaker.view())
        return store_time.convert_receipt(clock, known)

    refused: DeniedBy | None = None
    would_refuse: tuple[DeniedBy, ...] = ()
    first = new[0]
    if not breaker.can_admit(first.event_source) and breaker.is_denying():
        refused, would_refuse = split_by_mode(DeniedBy.BREAKER, plan.breaker_mode, would_refuse)
    asked = sum_costs(pod.cost for pod in new) if refused is None else NO_COST
    more = _sum_standing(state, plan, new) if refused is None else LiveAmounts(NO_COST, NO_COST)
    used, over = state.judge(plan, scope, asked, now_us, more)
    if over:
        refused, would_refuse = split_by_mode(DeniedBy.QUOTA, plan.quota_mode, would_refuse)
    if refused is None:
        generation = breaker.record.generation
        probe = breaker.take_probe(first.uid, first.event_source)
        for pod in new:
            charge_pod(state, plan, pod, now_us, now_us, generation=generation, probe=probe and pod is first)
        used, _ = state.judge(plan, scope, NO_COST, now_us)
    state.move_breaker(plan, breaker.record, now_us)
    receipt = build_receipt(
        now_us, used, over, refused, would_refuse, breaker.view(), breaker.transitions, charged=refused is None
    )
    return store_time.convert_receipt(clock, receipt)


def _sum_standing(state: TagState, plan: CounterPlan, pods: list[Acquire]) -> LiveAmounts:
    """Return what the Pods add to the live amounts."""
    found = [more for pod in pods if (more := compute_more_standing(state, plan, pod, pod.cost)) is not None]
    return LiveAmounts(sum_costs(more.own for more in found), sum_costs(more.pooled for more in found))


def _build_acquires(request: AcquireGroup) -> list[Acquire]:
    shared = request.plan, request.namespace
    return [
        Acquire(
            *(*shared, member.uid, member.cost, member.source),
            name=member.name,
            counts_as_event=False,
            team=request.team,
        )
        for member in request.members
    ]
