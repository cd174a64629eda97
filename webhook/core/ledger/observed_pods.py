"""Observed Pods reconciled with charges, as atomic operations.

Reference for every implementation of `ports.PodLedger`. The watch is authoritative. A Pod that is seen was created: it
is waited for no longer, it is live until it ends, and if it was never charged, it is charged as of its creation.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from webhook.core.ledger.charge import charge_seen_pod
from webhook.core.ledger.live_pods import build_live_set_key
from webhook.core.ledger.pod_record import PodRecord, charges_of
from webhook.core.ledger.tag_state import TagState
from webhook.core.quota import Cost, CounterPlan, PoolPod, Seen, Sighting, UnseenPod

_NOT_HELD = (None, None)
"""Amounts of a Pod that is not live, in the limits of the service and of its pool."""


def observe(state: TagState, plan: CounterPlan, seen: Sighting, reading_us: int) -> Seen:
    """Apply the watch's state of one Pod of the plan's service."""
    now_us, scope = state.find_clock(plan).now(reading_us), plan.scope_of(seen)
    state.record_time(reading_us)
    record = state.find_pod(seen.uid, now_us)
    stood = state.live_pods.find_all_held(plan, scope, seen.uid) if plan.limits_live_pods else _NOT_HELD
    is_known = stood != _NOT_HELD or (record is not None and record.service == plan.service)
    if not seen.is_sure and not is_known:
        return Seen(ignored=True)
    charged = record is None and _charge_afterwards(state, plan, seen, now_us)
    raised = record is not None and _raise(state, plan, seen, record, now_us)
    state.live_pods.stop_waiting(seen.uid)
    if seen.lives:
        state.live_pods.put(plan, scope, seen.uid, seen.cost if seen.live_cost is None else seen.live_cost, now_us)
    elif plan.limits_live_pods:
        where = build_live_set_key(plan, scope)
        if plan.standing is not None:
            state.live_pods.remove(where, seen.uid, now_us)
        state.live_pods.remove_from_pool(plan, where, seen.uid, now_us)
    is_same = not plan.limits_live_pods or state.live_pods.find_all_held(plan, scope, seen.uid) == stood
    return Seen(charged, raised, changed=not is_same)


def _charge_afterwards(state: TagState, plan: CounterPlan, seen: Sighting, now_us: int) -> bool:
    """Charge a Pod admitted without the store, or refunded too soon; unless its record would have expired by now."""
    at_us = min(seen.created_at_us + state.find_clock(plan).offset_us, now_us)
    if not seen.created_at_us or at_us + plan.remember_us <= now_us:
        return False
    charge_seen_pod(state, plan, seen, at_us, now_us, generation=state.find_breaker(plan.service).generation)
    return True


def _raise(state: TagState, plan: CounterPlan, seen: Sighting, record: PodRecord, now_us: int) -> bool:
    """Charge what a Pod uses above its highest charge: the increase of a resize that was not charged.

    A resource it was never charged for has been limited only since.
    """
    before = record.high_water
    more: Cost = {
        resource: seen.cost[resource] - amount
        for resource, amount in before.items()
        if resource != "pods" and seen.cost.get(resource, 0) > amount
    }
    if not more:
        return False
    state.charge(plan, charges_of(plan, plan.scope_of(seen), more), now_us, now_us)
    high_water = {**before, **{resource: seen.cost[resource] for resource in more}}
    state.remember(seen.uid, replace(record, expires_us=now_us + plan.remember_us, high_water=high_water))
    return True


def overdue(state: TagState, plan: CounterPlan, age_us: int, most: int, reading_us: int) -> Sequence[UnseenPod]:
    """Return Pods of the tag charged at least `age_us` ago and not seen since, oldest first."""
    now_us = state.find_clock(plan).now(reading_us)
    found = []
    for at_us, uid in state.live_pods.list_waiting(age_us, now_us, most):
        record = state.find_pod(uid, now_us)
        known = (record.namespace, record.name, record.service) if record is not None else ("", "", "")
        namespace, name, service = known
        found.append(UnseenPod(uid, namespace, name, now_us - at_us, service))
    return found


def stop_waiting(state: TagState, plan: CounterPlan, uid: str, reading_us: int) -> None:
    """Stop waiting for a Pod, and remove it from the live Pods: it is unknown whether it was ever created."""
    now_us = state.find_clock(plan).now(reading_us)
    state.live_pods.stop_waiting(uid)
    record = state.find_pod(uid, now_us)
    if record is not None:
        state.live_pods.remove(record.live_set_key, uid, now_us)
        state.live_pods.remove_from_pool(plan, record.live_set_key, uid, now_us)


def live(state: TagState, plan: CounterPlan, scope: str, reading_us: int) -> Mapping[str, Cost]:
    """Return the amounts of the live Pods of a scope that have been seen, or are no longer waited for."""
    return state.live_pods.list_live(plan, scope, state.find_clock(plan).now(reading_us))


def mark_complete(state: TagState, plan: CounterPlan, scopes: Sequence[str], reading_us: int) -> None:
    """Enforce limits on live Pods from now on: the list is complete, and its Pods are in `scopes`."""
    state.record_time(reading_us)
    state.live_pods.set_known(plan, scopes, state.find_clock(plan).now(reading_us))


def live_of_pool(state: TagState, plan: CounterPlan, reading_us: int) -> Sequence[PoolPod]:
    """Return the live Pods of the plan's pool that have been seen, or are no longer waited for."""
    return state.live_pods.list_of_pool(plan, state.find_clock(plan).now(reading_us))


def mark_pool_complete(state: TagState, plan: CounterPlan, reading_us: int) -> None:
    """Enforce limits on the live Pods of the pool from now on: those of all its members are known."""
    state.record_time(reading_us)
    state.live_pods.set_pool_known(plan, state.find_clock(plan).now(reading_us))


def drop_pool_pods(state: TagState, plan: CounterPlan, pods: Sequence[PoolPod], reading_us: int) -> None:
    """Remove Pods from those of the pool, unless they count for another service now."""
    now_us = state.find_clock(plan).now(reading_us)
    for pod in pods:
        state.live_pods.remove_from_pool(plan, (pod.service, plan.fleet, ""), pod.uid, now_us)


def reset(state: TagState, plan: CounterPlan, at_us: int, seconds: int | None, reading_us: int) -> bool:
    """Reset the service's own windows up to a moment, or the one of `seconds`; True if they held anything."""
    now_us = state.find_clock(plan).now(reading_us)
    scopes = state.list_scopes(plan, now_us) if plan.per_namespace else {""}
    done = [state.reset(plan, scope, at_us, seconds, now_us) for scope in scopes]
    return any(done)
