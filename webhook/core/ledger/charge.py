"""Charge of one Pod: counters, live Pods, uid record, and the wait for its sighting."""

from webhook.core.ledger.live_pods import LiveAmounts
from webhook.core.ledger.live_set import subtract
from webhook.core.ledger.pod_record import PodRecord
from webhook.core.ledger.tag_state import NO_COST, TagState
from webhook.core.quota import Acquire, Booking, Cost, CounterPlan, Sighting


def charge_pod(
    state: TagState,
    plan: CounterPlan,
    pod: Acquire | Booking | Sighting,
    at_us: int,
    now_us: int,
    *,
    generation: int,
    probe: bool = False,
) -> None:
    """Charge a Pod as of a moment, store its uid record, add it to the live Pods, and mark it as not seen yet."""
    charge_seen_pod(state, plan, pod, at_us, now_us, generation=generation, probe=probe)
    if plan.limits_live_pods:
        state.live_pods.put(plan, plan.scope_of(pod), pod.uid, pod.cost, now_us)
    state.live_pods.wait_for(pod.uid, at_us)


def charge_seen_pod(
    state: TagState,
    plan: CounterPlan,
    pod: Acquire | Booking | Sighting,
    at_us: int,
    now_us: int,
    *,
    generation: int,
    probe: bool = False,
) -> None:
    """Charge a Pod as of a moment, and store its uid record, without live Pods: for a Pod that has been seen."""
    namespace, high_water, charges, live_set_key = state.parts.get_parts(plan, pod)
    record = PodRecord(
        plan.service,
        at_us + plan.remember_us,
        high_water,
        charged_at_us=at_us,
        charges=state.charge(plan, charges, at_us, now_us),
        generation=generation,
        probe=probe,
        refunded=False,
        live_set_key=live_set_key,
        namespace=namespace,
        name=pod.name,
        source=_choose_source(plan, pod),
    )
    state.remember(pod.uid, record)


def compute_more_standing(
    state: TagState, plan: CounterPlan, request: Acquire, cost: Cost, unless_held: Cost = NO_COST
) -> LiveAmounts | None:
    """Return what a Pod adds to the live amounts: its cost minus what it holds; None without limits on live Pods."""
    if not plan.limits_live_pods:
        return None
    held = state.live_pods.find_held(plan, plan.scope_of(request), request.uid)
    pooled = state.live_pods.find_held_of_pool(plan, request.uid)
    return LiveAmounts(
        subtract(cost, unless_held if held is None else held), subtract(cost, unless_held if pooled is None else pooled)
    )


def _choose_source(plan: CounterPlan, pod: Acquire | Booking | Sighting) -> str:
    """Return the Pod's creator, or "" unless a breaker needs it for outcomes."""
    is_asked = plan.breaker is not None and plan.breaker.has_outcomes
    return pod.event_source if is_asked and isinstance(pod, Acquire) else ""
