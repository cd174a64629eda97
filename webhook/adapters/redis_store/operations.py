"""Operations of the script as values: a name, its arguments, and the keys that it touches.

Redis requires all keys of a script before it runs. If they depend on a Pod's record, `record` is sent first.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from webhook.adapters.redis_store import codec
from webhook.adapters.redis_store.keys import PlanKeys
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.core.breaker import BreakerView
from webhook.core.breaker.outcome_types import Outcomes, Start
from webhook.core.quota import Acquire, Booking, Sighting

ACQUIRE, QUEUE = "acquire", "queue"
"""Operations that do not advance a breaker: the latter never, the former seldom."""


class ScriptOperation(Struct, frozen=True, gc=False):
    """One operation."""

    planned: PreparedPlan
    name: str
    keys: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()


def acquire(planned: PreparedPlan, request: Acquire) -> ScriptOperation:
    scope, keys = _scope_and_keys(planned, request.namespace, request.uid)
    place, cost = f"{request.namespace}/{request.name}", codec.cost_text(request.cost)
    if request.resize_from is not None:
        before = codec.exact(request.resize_from)
        return ScriptOperation(planned, "resize", keys, (scope, place, cost, request.peek, before))
    asked = scope, place, cost, request.event_source, request.peek
    return ScriptOperation(planned, ACQUIRE, keys, asked if request.counts_as_event else (*asked, True))


def book(planned: PreparedPlan, booking: Booking) -> ScriptOperation:
    scope, keys = _scope_and_keys(planned, booking.namespace, booking.uid)
    place, cost = f"{booking.namespace}/{booking.name}", codec.cost_text(booking.cost)
    return ScriptOperation(planned, "book", keys, (scope, place, cost, booking.at_us))


def observe(planned: PreparedPlan, seen: Sighting) -> ScriptOperation:
    scope, keys = _scope_and_keys(planned, seen.namespace, seen.uid)
    place, cost = f"{seen.namespace}/{seen.name}", codec.cost_text(seen.cost)
    return ScriptOperation(planned, "observe", keys, (scope, place, cost, seen.created_at_us, seen.lives, seen.is_sure))


def record(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the service and the scope under which a Pod was charged."""
    return ScriptOperation(planned, "record", (planned.keys.pod(uid),))


def knows(planned: PreparedPlan, request: Acquire) -> ScriptOperation:
    """Find out whether a Pod is charged, and confirm that."""
    return ScriptOperation(planned, "knows", (planned.keys.pod(request.uid),), (request.peek,))


def place(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the namespace, name and service of a Pod."""
    return ScriptOperation(planned, "place", (planned.keys.pod(uid),))


def refund(planned: PreparedPlan, charged: PlanKeys, scope: str, uid: str) -> ScriptOperation:
    """Refund a Pod from the counters that it was charged to."""
    keys = charged.ring_of(scope), charged.pod(uid), charged.home, charged.breaker, charged.live_of(scope)
    return ScriptOperation(planned, "refund", keys)


def withdraw(planned: PreparedPlan, request: Acquire, charged_us: int | None) -> ScriptOperation:
    """Withdraw the charge that an Acquire has made at that time, or if it is None at any."""
    keys, scope = planned.keys, planned.plan.scope_of(request.namespace)
    of_refund = refund(planned, keys, scope, request.uid).keys
    return ScriptOperation(planned, "withdraw", of_refund, (scope, False if charged_us is None else charged_us))


def stop_waiting(planned: PreparedPlan, uid: str, *live: str) -> ScriptOperation:
    """Stop waiting for a Pod, and remove it from the live Pods whose key is given."""
    return ScriptOperation(planned, "stop_waiting", (planned.keys.pod(uid), *live), () if live else (0,))


def overdue(planned: PreparedPlan, age_us: int, most: int) -> ScriptOperation:
    return ScriptOperation(planned, "overdue", arguments=(age_us, most))


def counting_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces in which anything is counted."""
    return ScriptOperation(planned, "scopes")


def live_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces that may have live Pods."""
    return ScriptOperation(planned, "lived")


def live_counts(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    return ScriptOperation(planned, "standing", tuple(planned.keys.live_of(scope) for scope in scopes))


def live_page(planned: PreparedPlan, scope: str, cursor: str) -> ScriptOperation:
    return ScriptOperation(planned, "page", (planned.keys.live_of(scope),), (cursor,))


def mark_complete(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    keys = tuple(planned.keys.live_of(scope) for scope in scopes if scope)
    return ScriptOperation(planned, "mark_complete", keys)


def reset(planned: PreparedPlan, scope: str, at_us: int, seconds: int | None) -> ScriptOperation:
    return ScriptOperation(planned, "reset", (planned.keys.ring_of(scope),), (at_us, seconds or False))


def others_settled(planned: PreparedPlan, replica: str, *, afresh: bool) -> ScriptOperation:
    return ScriptOperation(planned, "others_settled", arguments=(replica, afresh))


def snapshot(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    keys, has_live = planned.keys, bool(planned.plan.standing)
    # The keys of each scope: its ring, and its live Pods if they are limited.
    pairs = ((keys.ring_of(scope), keys.live_of(scope)) if has_live else (keys.ring_of(scope),) for scope in scopes)
    return ScriptOperation(planned, "snapshot", tuple(key for pair in pairs for key in pair))


def tick(planned: PreparedPlan) -> ScriptOperation:
    return ScriptOperation(planned, "tick")


def changed(services: Sequence[PreparedPlan], ticked_us: int, fingerprints: Sequence[str]) -> ScriptOperation:
    """Find the services that are not as their latest tick left them; the newest of the ticks was at `ticked_us`."""
    keys = tuple(key for one in services for key in (one.keys.breaker, one.keys.home))
    return ScriptOperation(services[0], "changed", keys, (ticked_us, codec.packed_list(fingerprints)))


def record_outcomes(planned: PreparedPlan, outcomes: Sequence[Outcomes]) -> ScriptOperation:
    keys = tuple(planned.keys.pod(one.uid) for one in outcomes if one.uid is not None)
    return ScriptOperation(planned, "record_outcomes", keys, (codec.packed_outcomes(outcomes),))


def started(planned: PreparedPlan, start: Start) -> ScriptOperation:
    said = start.ok, start.latency_us, start.age_us
    return ScriptOperation(planned, "started", (planned.keys.pod(start.uid),), said)


def suppress_quota_events(planned: PreparedPlan, sources: Sequence[str]) -> ScriptOperation:
    return ScriptOperation(planned, "suppress_quota_events", arguments=(list(sources),))


def apply_override(planned: PreparedPlan, reset_at_us: int) -> ScriptOperation:
    return ScriptOperation(planned, "apply_override", arguments=(reset_at_us,))


def propose(planned: PreparedPlan, view: BreakerView) -> ScriptOperation:
    return ScriptOperation(planned, "propose", arguments=(codec.packed_view(view),))


def queue(planned: PreparedPlan, name: str, *arguments: Any) -> ScriptOperation:
    """Return an operation on the index of waiting Pods."""
    return ScriptOperation(planned, QUEUE, (planned.keys.queue,), (name, *arguments))


def _scope_and_keys(planned: PreparedPlan, namespace: str, uid: str) -> tuple[str, tuple[str, ...]]:
    """Return a Pod's scope, and its keys: ring, record, live Pods (if these are not limited, the record again)."""
    keys, plan = planned.keys, planned.plan
    pod = keys.pods + uid
    if not plan.per_namespace:
        return "", (keys.ring, pod, keys.live if plan.standing else pod)
    return namespace, (keys.ring_of(namespace), pod, keys.live_of(namespace) if plan.standing else pod)
