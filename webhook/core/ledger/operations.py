"""Atomic operations on one Pod and its service's counters.

Reference for every implementation of `ports.CounterStore`, including the order of steps; the Lua script is tested
against it.
"""

from msgspec.structs import replace

from webhook.core import breaker as machine
from webhook.core.breaker import BreakerView, Transition
from webhook.core.ledger import store_time
from webhook.core.ledger.breaker_operations import BreakerScript
from webhook.core.ledger.charge import charge_pod, compute_more_standing
from webhook.core.ledger.live_pods import WAITED_US, build_live_set_key
from webhook.core.ledger.pod_record import PodRecord, charges_of
from webhook.core.ledger.tag_state import NO_COST, TagState
from webhook.core.policy_fields import Mode
from webhook.core.quota import (
    Acquire,
    Booking,
    Cost,
    CounterPlan,
    DeniedBy,
    Holder,
    Receipt,
    ServiceSnapshot,
    Use,
    find_free_at_us,
)


def acquire(state: TagState, request: Acquire, reading_us: int) -> Receipt:
    """Check one Pod and, unless `peek`, charge it: all or nothing, each uid once."""
    clock = state.find_clock(request.plan)
    if not request.peek:
        clock.observe(reading_us)
        state.record_time(reading_us)
    now_us = clock.now(reading_us)
    if request.resize_from is not None:
        receipt = _resize(state, request, request.resize_from, now_us)
    else:
        receipt = _acquire_pod(state, request, now_us)
    return store_time.convert_receipt(clock, receipt) if clock.offset_us else receipt


def _acquire_pod(state: TagState, request: Acquire, now_us: int) -> Receipt:
    plan, scope = request.plan, request.plan.scope_of(request)
    breaker = BreakerScript(state, plan, now_us)
    known = find_confirmed(state, request, now_us)
    if known is not None:
        used, _ = state.judge(plan, scope, NO_COST, now_us)
        charged_us = known.charged_at_us
        return Receipt(now_us, repeated=True, used=tuple(used), breaker=breaker.view(), charged_us=charged_us)

    refused: DeniedBy | None = None
    would_refuse: tuple[DeniedBy, ...] = ()
    if not breaker.can_admit(request.event_source) and breaker.is_denying():
        refused, would_refuse = split_by_mode(DeniedBy.BREAKER, plan.breaker_mode, would_refuse)
    asked = request.cost if refused is None else NO_COST
    standing = compute_more_standing(state, plan, request, asked) if plan.limits_live_pods else None
    used, over = state.judge(plan, scope, asked, now_us, standing)
    if over:
        refused, would_refuse = split_by_mode(DeniedBy.QUOTA, plan.quota_mode, would_refuse)

    if request.peek:
        return build_receipt(now_us, used, over, refused, would_refuse, breaker.view())
    if refused is None:
        generation = breaker.record.generation
        probe = breaker.take_probe(request.uid, request.event_source)
        charge_pod(state, plan, request, now_us, now_us, generation=generation, probe=probe)
        if standing is None:
            used = _add_cost(used, plan, request.cost)
        else:  # of live Pods it is not the cost that was added
            used, _ = state.judge(plan, scope, NO_COST, now_us)
    elif request.counts_as_event and refused is DeniedBy.QUOTA and any(use.of is not Holder.POOL for use in over):
        breaker.record_quota_event(
            request.event_source
        )  # if only the pool is exceeded, another member may be the cause
    state.move_breaker(plan, breaker.record, now_us)
    charged = refused is None
    return build_receipt(
        now_us, used, over, refused, would_refuse, breaker.view(), breaker.transitions, charged=charged
    )


def _resize(state: TagState, request: Acquire, old: Cost, now_us: int) -> Receipt:
    """Charge a running Pod for what it uses above its highest charge. The breaker does not take part.

    A smaller Pod still takes as much of the limits on live Pods: its node keeps that until the watch shows otherwise.
    """
    plan, scope, known = request.plan, request.plan.scope_of(request), state.find_pod(request.uid, now_us)
    before = {**old, **known.high_water} if known is not None else old
    more = {
        resource: amount - before.get(resource, 0)
        for resource, amount in request.cost.items()
        if amount > before.get(resource, 0) and resource != "pods"
    }
    standing = compute_more_standing(state, plan, request, request.cost, old)
    used, over = state.judge(plan, scope, more, now_us, standing)
    refused: DeniedBy | None = None
    would_refuse: tuple[DeniedBy, ...] = ()
    if over:
        refused, would_refuse = split_by_mode(DeniedBy.QUOTA, plan.quota_mode, would_refuse)

    written = refused is None and not request.peek
    if written:
        state.charge(plan, charges_of(plan, scope, more), now_us, now_us)
        generation = state.find_breaker(plan.service).generation
        record = known or PodRecord(
            plan.service,
            0,
            NO_COST,
            generation=generation,
            live_set_key=build_live_set_key(plan, scope),
            namespace=request.namespace,
            name=request.name,
        )
        high_water = {**before, **{resource: request.cost[resource] for resource in more}}
        state.remember(request.uid, replace(record, expires_us=now_us + plan.remember_us, high_water=high_water))
        state.live_pods.raise_to(plan, scope, request.uid, request.cost, old, now_us)
        used, _ = state.judge(plan, scope, NO_COST, now_us)
    view = BreakerScript(state, plan, now_us).view()
    return build_receipt(now_us, used, over, refused, would_refuse, view, charged=written and bool(more))


def refund(state: TagState, plan: CounterPlan, uid: str, reading_us: int) -> bool:
    """Refund, once, the charge of a Pod that was never created, and free its probe lease."""
    now_us = state.find_clock(plan).now(reading_us)
    state.live_pods.stop_waiting(uid)
    record = state.find_pod(uid, now_us)
    if record is None:
        return False
    state.remember(uid, replace(record, refunded=True))
    state.live_pods.remove(record.live_set_key, uid, now_us)
    state.live_pods.remove_from_pool(plan, record.live_set_key, uid, now_us)
    if record.probe:
        state.set_breaker(machine.give_back_probe(state.find_breaker(record.service), uid, now_us))
    return state.give_back(record, reading_us)


def withdraw(state: TagState, request: Acquire, charged_us: int | None, reading_us: int) -> bool:
    """Undo a charge as if it had never been made, if only this Acquire has made it and no other call relies on it."""
    plan, uid, clock = request.plan, request.uid, state.find_clock(request.plan)
    now_us = clock.now(reading_us)
    record = state.find_pod(uid, now_us)
    if record is None or record.live_set_key != build_live_set_key(plan, plan.scope_of(request)):
        return False
    at_us = record.charged_at_us if charged_us is None else charged_us + clock.offset_us
    if not record.charged_at_us == at_us == state.live_pods.find_wait_start(uid):
        return False
    refund(state, plan, uid, reading_us)
    state.remember(uid, replace(record, refunded=True, expires_us=now_us))
    return True


def book(state: TagState, plan: CounterPlan, booking: Booking, reading_us: int) -> bool:
    """Charge a Pod admitted without the store, at its own time and past every limit; False for a known uid."""
    now_us = state.find_clock(plan).now(reading_us)
    state.record_time(reading_us)
    at_us = min(booking.at_us + state.find_clock(plan).offset_us, now_us)
    expires_us = at_us + plan.remember_us
    known = state.find_pod(booking.uid, now_us)
    if known is not None:
        _confirm(state, booking.uid, known, now_us)
    if known is not None or state.was_refunded(booking.uid, now_us) or expires_us <= now_us:
        return False
    charge_pod(state, plan, booking, at_us, now_us, generation=state.find_breaker(plan.service).generation)
    return True


def snapshot(state: TagState, plan: CounterPlan, reading_us: int, namespace: str = "") -> ServiceSnapshot:
    """Return a snapshot of the service; writes nothing. Each limit is asked for one unit, to find when any is free.

    If namespaces count apart, it has those in which anything counts, and always `namespace`.
    """
    now_us = state.find_clock(plan).now(reading_us)
    live = state.live_pods.list_scopes(plan) if plan.standing else ()
    counting = {*state.list_scopes(plan, now_us), *live, *([namespace] if namespace else [])}
    scopes = sorted(counting) if plan.per_namespace else [""]
    uses = {
        scope: (
            *store_time.convert_uses(state.find_clock(plan), state.list_uses(plan, scope, now_us, Holder.SERVICE)),
            *state.live_pods.list_uses(plan, scope, now_us),
        )
        for scope in scopes
    }
    pooled = (*state.list_uses(plan, "", now_us, Holder.POOL), *state.live_pods.list_uses_of_pool(plan))
    pool = store_time.convert_uses(state.find_clock(plan), pooled)
    view = store_time.convert_view(state.find_clock(plan), BreakerScript(state, plan, now_us).view())
    limits_own = plan.windows or plan.standing
    is_known = plan.standing is not None and state.live_pods.is_known(plan, now_us)
    return ServiceSnapshot(
        state.find_clock(plan).convert_to_store(now_us),
        uses if limits_own else {},
        view,
        pool,
        is_known,
        is_pool_standing_known=state.live_pods.is_pool_known(plan, now_us) if plan.pool_standing is not None else None,
    )


def find_charged_us(state: TagState, request: Acquire, reading_us: int) -> int | None:
    """Return when a Pod was charged, None if it is not; unless it is a `peek`, that confirms the charge."""
    clock = state.find_clock(request.plan)
    known = find_confirmed(state, request, clock.now(reading_us))
    return None if known is None else clock.convert_to_store(known.charged_at_us)


def find_confirmed(state: TagState, request: Acquire, now_us: int) -> PodRecord | None:
    """Return the record of a Pod that is charged; unless the request is a `peek`, that confirms the charge."""
    known = state.find_pod(request.uid, now_us)
    if known is not None and not request.peek:
        _confirm(state, request.uid, known, now_us)
    return known


def _confirm(state: TagState, uid: str, record: PodRecord, now_us: int) -> None:
    """Record that another call relies on a charge: with another start of its wait, no call can withdraw it."""
    since_us = state.live_pods.find_wait_start(uid)
    if since_us is not None and since_us > now_us - WAITED_US:
        state.live_pods.wait_for(uid, record.charged_at_us - 1)


def _add_cost(used: list[int], plan: CounterPlan, cost: Cost) -> list[int]:
    return [has + cost.get(name, 0) for has, name in zip(used, plan.limited, strict=True)]


def split_by_mode(
    guard: DeniedBy, mode: Mode, would_refuse: tuple[DeniedBy, ...]
) -> tuple[DeniedBy | None, tuple[DeniedBy, ...]]:
    """Return (refused, would_refuse): a guard that is not enforced denies nothing but is reported."""
    return (guard, would_refuse) if mode is Mode.ENFORCE else (None, (*would_refuse, guard))


def build_receipt(  # noqa: PLR0913  the parts of a receipt
    now_us: int,
    used: list[int],
    over: list[Use],
    refused: DeniedBy | None,
    would_refuse: tuple[DeniedBy, ...],
    breaker: BreakerView | None,
    transitions: tuple[Transition, ...] = (),
    *,
    charged: bool = False,
) -> Receipt:
    """Return the answer to a request. `over` are the limits that are exceeded."""
    return Receipt(
        now_us,
        refused,
        would_refuse,
        charged,
        used=tuple(used),
        over=tuple(over),
        free_at_us=find_free_at_us(over) if over else 0,
        breaker=breaker,
        transitions=transitions,
    )
