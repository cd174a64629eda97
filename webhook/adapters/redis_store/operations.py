"""Operations of the script as values: a name, its arguments, and the keys that it touches.

Each function has the name of the operation in the script, and `OPERATIONS` names its values. Redis requires all keys of
a script before it runs. If they depend on a Pod's record, `find_charge` is sent first.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.adapters.redis_store.transport.script import OPERATIONS, QUEUE_ACTIONS, SLOT_ACTIONS
from webhook.core.breaker import BreakerView
from webhook.core.breaker.outcome_types import Outcomes, Start
from webhook.core.quota import Acquire, AcquireGroup, Booking, PoolPod, Sighting, clip_amounts

ACQUIRE, QUEUE, SLOTS = "acquire", "queue", "slots"
"""Operations that do not advance a breaker: the first seldom, the others never."""
_KEY = "_key"
"""End of the names of those values that are keys."""


class ChargedPod(NamedTuple):
    """What a Pod was charged to: a service and its keys, and the scope."""

    service: str
    keys: PlanKeys
    scope: str


class ScriptOperation(Struct, frozen=True, gc=False):
    """One operation."""

    planned: PreparedPlan
    name: str
    keys: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()


def acquire(planned: PreparedPlan, request: Acquire) -> ScriptOperation:
    scope, keys = _find_scope_and_keys(planned, request)
    place, cost = f"{request.namespace}/{request.name}", codec.encode_cost(request.cost)
    if request.resize_from is not None:
        before, peek = clip_amounts(request.resize_from), request.peek
        return _make_operation(
            planned, "resize", *keys, scope=scope, place=place, cost_text=cost, peek=peek, old=before
        )
    # In the order of OPERATIONS, without names because an operation is made for each Pod.
    asked = scope, place, cost, request.event_source, request.peek
    return ScriptOperation(planned, ACQUIRE, keys, asked if request.counts_as_event else (*asked, True))


def acquire_group(planned: PreparedPlan, request: AcquireGroup) -> ScriptOperation:
    """Charge Pods together. The keys of their records precede the others."""
    scope, plan = planned.plan.scope_of(request), planned.plan
    keys = tuple(planned.keys.pod(member.uid) for member in request.members)
    own_key, live_key = planned.keys.ring_of(scope), planned.keys.live_of(scope) if plan.standing else keys[0]
    members = [
        (f"{request.namespace}/{member.name}", codec.encode_cost(member.cost), member.source)
        for member in request.members
    ]
    return ScriptOperation(planned, "acquire_group", (*keys, own_key, live_key), (scope, members))


def book(planned: PreparedPlan, booking: Booking) -> ScriptOperation:
    scope, keys = _find_scope_and_keys(planned, booking)
    place, cost = f"{booking.namespace}/{booking.name}", codec.encode_cost(booking.cost)
    return _make_operation(planned, "book", *keys, scope=scope, place=place, cost_text=cost, at=booking.at_us)


def observe(planned: PreparedPlan, seen: Sighting) -> ScriptOperation:
    scope, keys = _find_scope_and_keys(planned, seen)
    place, cost = f"{seen.namespace}/{seen.name}", codec.encode_cost(seen.cost)
    live_cost = False if seen.live_cost is None else codec.encode_cost(seen.live_cost)
    state = {
        "created_at": seen.created_at_us,
        "is_live": seen.lives,
        "is_sure": seen.is_sure,
        "live_cost_text": live_cost,
    }
    return _make_operation(planned, "observe", *keys, scope=scope, place=place, cost_text=cost, **state)


def find_charge(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the service and the scope under which a Pod was charged."""
    return _make_operation(planned, "find_charge", pod_key=planned.keys.pod(uid))


def find_charged_us(planned: PreparedPlan, request: Acquire) -> ScriptOperation:
    """Find out whether a Pod is charged, and confirm that."""
    return _make_operation(planned, "find_charged_us", pod_key=planned.keys.pod(request.uid), peek=request.peek)


def find_place(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the namespace, name and service of a Pod."""
    return _make_operation(planned, "find_place", pod_key=planned.keys.pod(uid))


def refund(planned: PreparedPlan, charged: PlanKeys, scope: str, uid: str) -> ScriptOperation:
    """Refund a Pod from the counters that it was charged to."""
    return _make_operation(planned, "refund", **_list_charge_keys(planned, charged, scope, uid))


def withdraw(planned: PreparedPlan, request: Acquire, charged_us: int | None) -> ScriptOperation:
    """Withdraw the charge that an Acquire made at that time; None: at any time."""
    scope = planned.plan.scope_of(request)
    keys = _list_charge_keys(planned, planned.keys, scope, request.uid)
    return _make_operation(planned, "withdraw", **keys, scope=scope, at=False if charged_us is None else charged_us)


def stop_waiting(planned: PreparedPlan, uid: str, charge: ChargedPod | None = None) -> ScriptOperation:
    """Stop waiting for a Pod, and remove it from the live Pods that it was charged to."""
    keys: dict[str, str | bool] = {"pod_key": planned.keys.pod(uid), "live_key": False, "pool_live_key": False}
    if charge is not None:
        keys |= {"live_key": charge.keys.live_of(charge.scope), "pool_live_key": _find_pool_live(planned, charge.keys)}
    return _make_operation(planned, "stop_waiting", **keys, service=charge.service if charge is not None else "")


def list_pool_live(planned: PreparedPlan, cursor: str, found: Any) -> ScriptOperation:
    """List a page of the live Pods of the pool; `found` is of the page before."""
    keys = {"pool_live_key": planned.keys.pool_live}
    return _make_operation(planned, "list_pool_live", **keys, cursor=cursor, found=found)


def mark_pool_complete(planned: PreparedPlan) -> ScriptOperation:
    return _make_operation(planned, "mark_pool_complete", pool_live_key=planned.keys.pool_live)


def drop_pool_pod(planned: PreparedPlan, pod: PoolPod) -> ScriptOperation:
    """Remove a Pod from the live Pods of the pool."""
    keys = {"pod_key": planned.keys.pod(pod.uid), "pool_live_key": planned.keys.pool_live}
    return _make_operation(planned, "drop_pool_pod", **keys, service=pod.service)


def list_overdue(planned: PreparedPlan, age_us: int, most: int) -> ScriptOperation:
    return _make_operation(planned, "list_overdue", age=age_us, most=most)


def list_counting_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces in which anything is counted."""
    return _make_operation(planned, "list_counting_scopes")


def list_live_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces that may have live Pods."""
    return _make_operation(planned, "list_live_scopes")


def count_live(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    """Count the live Pods of each scope, and forget namespaces that have had none for long."""
    return ScriptOperation(planned, "count_live", tuple(map(planned.keys.live_of, scopes)), tuple(scopes))


def list_live(planned: PreparedPlan, scope: str, cursor: str, found: Any) -> ScriptOperation:
    """List a page of the live Pods; `found` is of the page before."""
    return _make_operation(planned, "list_live", live_key=planned.keys.live_of(scope), cursor=cursor, found=found)


def mark_complete(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    return _make_operation(planned, "mark_complete", *(planned.keys.live_of(scope) for scope in scopes if scope))


def forget_whole(planned: PreparedPlan, cursor: str) -> ScriptOperation:
    """Forget a page of the live Pods of a service whose namespaces count apart now."""
    return _make_operation(planned, "forget_whole", cursor=cursor)


def reset_windows(planned: PreparedPlan, scope: str, at_us: int, seconds: int | None) -> ScriptOperation:
    own_key = planned.keys.ring_of(scope)
    return _make_operation(planned, "reset_windows", own_key=own_key, asked=at_us, only_seconds=seconds or False)


def count_settled(planned: PreparedPlan, replica: str, *, afresh: bool) -> ScriptOperation:
    """Count the other replicas that owe nothing."""
    return _make_operation(planned, "count_settled", replica=replica, afresh=afresh)


def snapshot(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    keys, has_live = planned.keys, planned.plan.limits_live_pods
    # The keys of each scope: its ring, and its live Pods if they are limited.
    pairs = ((keys.ring_of(scope), keys.live_of(scope)) if has_live else (keys.ring_of(scope),) for scope in scopes)
    return _make_operation(planned, "snapshot", *(key for pair in pairs for key in pair))


def tick(planned: PreparedPlan) -> ScriptOperation:
    return _make_operation(planned, "tick")


def compare(services: Sequence[PreparedPlan], ticked_us: int, fingerprints: Sequence[str]) -> ScriptOperation:
    """Find the services that are not as their latest tick left them; the newest of the ticks was at `ticked_us`."""
    keys = (key for service in services for key in (service.keys.breaker, service.keys.home))
    return _make_operation(
        services[0], "compare", *keys, ticked_at=ticked_us, fingerprints=codec.encode_list(fingerprints)
    )


def record_outcomes(planned: PreparedPlan, outcomes: Sequence[Outcomes]) -> ScriptOperation:
    pods = (planned.keys.pod(reported.uid) for reported in outcomes if reported.uid is not None)
    return _make_operation(planned, "record_outcomes", *pods, outcomes=codec.encode_outcomes(outcomes))


def record_start(planned: PreparedPlan, start: Start) -> ScriptOperation:
    observed = {"ok": start.ok, "latency": start.latency_us, "age": start.age_us}
    return _make_operation(planned, "record_start", pod_key=planned.keys.pod(start.uid), **observed)


def suppress_quota_events(planned: PreparedPlan, sources: Sequence[str]) -> ScriptOperation:
    return _make_operation(planned, "suppress_quota_events", sources=list(sources))


def apply_override(planned: PreparedPlan, reset_at_us: int) -> ScriptOperation:
    return _make_operation(planned, "apply_override", asked=reset_at_us)


def propose(planned: PreparedPlan, view: BreakerView) -> ScriptOperation:
    return _make_operation(planned, "propose", view=codec.encode_view(view))


def queue(planned: PreparedPlan, action: str, **values: Any) -> ScriptOperation:
    """Return an action on the index of waiting Pods."""
    asked = _sort_values(QUEUE_ACTIONS[action], values)
    return ScriptOperation(planned, QUEUE, (planned.keys.queue,), (action, *asked))


def slots(planned: PreparedPlan, owner: str, action: str, **values: Any) -> ScriptOperation:
    """Return an action on the slots of an owner."""
    asked = _sort_values(SLOT_ACTIONS[action], values)
    return ScriptOperation(planned, SLOTS, (planned.keys.slots + owner,), (action, *asked))


def claim_slot(planned: PreparedPlan, owner: str, claim: str, ttl_ms: int, *, is_dry_run: bool) -> ScriptOperation:
    # In the order of SLOT_ACTIONS, without names because an operation is made for each Pod.
    return ScriptOperation(planned, SLOTS, (planned.keys.slots + owner,), ("claim", claim, is_dry_run, ttl_ms))


def _make_operation(planned: PreparedPlan, name: str, *keys: str, **values: Any) -> ScriptOperation:
    """Return an operation on these keys and on those that `values` names; False is none."""
    fields = OPERATIONS[name]
    if keys:
        fields = fields[len(fields) - len(values) :]
    asked = dict(zip(fields, _sort_values(fields, values), strict=True))
    named = [field for field, value in asked.items() if field.endswith(_KEY) and value is not False]
    arguments = tuple(value for field, value in asked.items() if field not in named)
    return ScriptOperation(planned, name, (*keys, *map(asked.__getitem__, named)), arguments)


def _sort_values(fields: Sequence[str], values: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values in the order of their fields; ValueError if one is missing, or there is another one."""
    if values.keys() != set(fields):
        raise ValueError(f"the fields are {fields}, not {[*values]}")
    return [values[field] for field in fields]


def _list_charge_keys(planned: PreparedPlan, charged: PlanKeys, scope: str, uid: str) -> Mapping[str, str | bool]:
    """Return the keys that a charge has changed, by their names in OPERATIONS."""
    return {
        "own_key": charged.ring_of(scope),
        "pod_key": charged.pod(uid),
        "home_key": charged.home,
        "breaker_key": charged.breaker,
        "live_key": charged.live_of(scope),
        "pool_live_key": _find_pool_live(planned, charged),
    }


def _find_pool_live(planned: PreparedPlan, charged: PlanKeys) -> str | bool:
    """Return the key of the live Pods of a pool that a Pod was charged to; False if they are not limited."""
    return charged.pool_live if planned.plan.pool_standing is not None else False


def _find_scope_and_keys(planned: PreparedPlan, seen: Acquire | Booking | Sighting) -> tuple[str, tuple[str, ...]]:
    """Return a Pod's scope, and its keys: ring, record, live Pods (if these are not limited, the record again)."""
    keys, plan = planned.keys, planned.plan
    pod = keys.pods + seen.uid
    if not plan.per_namespace:
        return "", (keys.ring, pod, keys.live if plan.standing else pod)
    scope = plan.scope_of(seen)
    return scope, (keys.ring_of(scope), pod, keys.live_of(scope) if plan.standing else pod)
