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
    """One operation. `request` is its name and its arguments."""

    planned: PreparedPlan
    request: tuple[Any, ...]
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        name: str = self.request[0]
        return name


def acquire(planned: PreparedPlan, request: Acquire) -> ScriptOperation:
    scope = planned.plan.scope_of(request.namespace)
    return ScriptOperation(planned, codec.packed_acquire(request, scope), _pod_keys(planned, scope, request.uid))


def book(planned: PreparedPlan, booking: Booking) -> ScriptOperation:
    scope = planned.plan.scope_of(booking.namespace)
    keys = _pod_keys(planned, scope, booking.uid)
    return ScriptOperation(planned, codec.packed_booking(booking, scope), keys)


def observe(planned: PreparedPlan, sighting: Sighting) -> ScriptOperation:
    scope = planned.plan.scope_of(sighting.namespace)
    keys = _pod_keys(planned, scope, sighting.uid)
    return ScriptOperation(planned, codec.packed_sighting(sighting, scope), keys)


def record(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the service and the scope under which a Pod was charged."""
    return ScriptOperation(planned, ("record",), (planned.keys.pod(uid),))


def place(planned: PreparedPlan, uid: str) -> ScriptOperation:
    """Read the namespace, name and service of a Pod."""
    return ScriptOperation(planned, ("place",), (planned.keys.pod(uid),))


def refund(planned: PreparedPlan, charged: PlanKeys, scope: str, uid: str) -> ScriptOperation:
    """Refund a Pod from the counters that it was charged to."""
    keys = charged.ring_of(scope), charged.pod(uid), charged.home, charged.breaker, charged.live_of(scope)
    return ScriptOperation(planned, ("refund",), keys)


def stop_waiting(planned: PreparedPlan, uid: str, *live: str) -> ScriptOperation:
    """Stop waiting for a Pod, and remove it from the live Pods whose key is given."""
    request = ("stop_waiting",) if live else ("stop_waiting", 0)
    return ScriptOperation(planned, request, (planned.keys.pod(uid), *live))


def overdue(planned: PreparedPlan, age_us: int, most: int) -> ScriptOperation:
    return ScriptOperation(planned, ("overdue", age_us, most))


def counting_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces in which anything is counted."""
    return ScriptOperation(planned, ("scopes",))


def live_scopes(planned: PreparedPlan) -> ScriptOperation:
    """List the namespaces that may have live Pods."""
    return ScriptOperation(planned, ("lived",))


def live_counts(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    return ScriptOperation(planned, ("standing",), tuple(planned.keys.live_of(scope) for scope in scopes))


def live_page(planned: PreparedPlan, scope: str, cursor: str) -> ScriptOperation:
    return ScriptOperation(planned, ("page", cursor), (planned.keys.live_of(scope),))


def mark_complete(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    keys = tuple(planned.keys.live_of(scope) for scope in scopes if scope)
    return ScriptOperation(planned, ("mark_complete",), keys)


def reset(planned: PreparedPlan, scope: str, at_us: int, seconds: int | None) -> ScriptOperation:
    return ScriptOperation(planned, ("reset", at_us, seconds or False), (planned.keys.ring_of(scope),))


def others_settled(planned: PreparedPlan, replica: str, *, afresh: bool) -> ScriptOperation:
    return ScriptOperation(planned, ("others_settled", replica, afresh))


def snapshot(planned: PreparedPlan, scopes: Sequence[str]) -> ScriptOperation:
    keys, has_live = planned.keys, bool(planned.plan.standing)
    # The keys of each scope: its ring, and its live Pods if they are limited.
    pairs = ((keys.ring_of(scope), keys.live_of(scope)) if has_live else (keys.ring_of(scope),) for scope in scopes)
    return ScriptOperation(planned, ("snapshot",), tuple(key for pair in pairs for key in pair))


def tick(planned: PreparedPlan) -> ScriptOperation:
    return ScriptOperation(planned, ("tick",))


def changed(services: Sequence[PreparedPlan], ticked_us: int, fingerprints: Sequence[str]) -> ScriptOperation:
    """Find the services that are not as their latest tick left them; the newest of the ticks was at `ticked_us`."""
    keys = tuple(key for one in services for key in (one.keys.breaker, one.keys.home))
    request = "changed", ticked_us, codec.packed_list(fingerprints)
    return ScriptOperation(services[0], request, keys)


def record_outcomes(planned: PreparedPlan, outcomes: Sequence[Outcomes]) -> ScriptOperation:
    keys = tuple(planned.keys.pod(one.uid) for one in outcomes if one.uid is not None)
    return ScriptOperation(planned, ("record_outcomes", codec.packed_outcomes(outcomes)), keys)


def started(planned: PreparedPlan, start: Start) -> ScriptOperation:
    request = "started", start.ok, start.latency_us, start.age_us
    return ScriptOperation(planned, request, (planned.keys.pod(start.uid),))


def suppress_quota_events(planned: PreparedPlan, sources: Sequence[str]) -> ScriptOperation:
    return ScriptOperation(planned, ("suppress_quota_events", list(sources)))


def apply_override(planned: PreparedPlan, reset_at_us: int) -> ScriptOperation:
    return ScriptOperation(planned, ("apply_override", reset_at_us))


def propose(planned: PreparedPlan, view: BreakerView) -> ScriptOperation:
    return ScriptOperation(planned, ("propose", codec.packed_view(view)))


def queue(planned: PreparedPlan, name: str, *arguments: Any) -> ScriptOperation:
    """Return an operation on the index of waiting Pods."""
    return ScriptOperation(planned, (QUEUE, name, *arguments), (planned.keys.queue,))


def _pod_keys(planned: PreparedPlan, scope: str, uid: str) -> tuple[str, ...]:
    """Return the keys of one Pod: ring, record, live Pods (if these are not limited, the record again)."""
    keys = planned.keys
    pod = keys.pods + uid
    return keys.ring_of(scope) if scope else keys.ring, pod, keys.live_of(scope) if planned.plan.standing else pod
