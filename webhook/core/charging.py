"""What every way to charge a Pod has in common: count it, let it stand, remember it, wait for it."""

from webhook.core.quota import Acquire, Booking, Cost, CounterPlan, Sighting
from webhook.core.roll import stands
from webhook.core.standing import difference
from webhook.core.tag_state import NO_COST, PodRecord, TagState


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
    """Charge a Pod as of a moment, let it stand, remember it, and wait until somebody has seen it."""
    scope = plan.scope_of(pod.namespace)
    charges = state.charge(plan, scope, pod.cost, at_us, now_us)
    record = PodRecord(
        plan.service,
        at_us + plan.remember_us,
        pod.cost,
        at_us,
        charges,
        generation,
        probe,
        stands=stands(plan, scope),
        namespace=pod.namespace,
        name=pod.name,
    )
    state.remember(pod.uid, record)
    state.roll.put(plan, scope, pod.uid, pod.cost, now_us)
    state.roll.wait_for(pod.uid, at_us)


def more_standing(
    state: TagState, plan: CounterPlan, request: Acquire, cost: Cost, unless_held: Cost = NO_COST
) -> Cost | None:
    """Return what a Pod asks of live ones beside what it stands with already; None where nothing limits them."""
    if plan.standing is None:
        return None
    held = state.roll.held(plan, plan.scope_of(request.namespace), request.uid)
    return difference(cost, unless_held if held is None else held)
