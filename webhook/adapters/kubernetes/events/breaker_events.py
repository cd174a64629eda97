"""Events about breaker transitions, on the policy's ConfigMap: one per transition, from a server or the controller."""

from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, minute_of
from webhook.core.breaker import State, Transition

_REASONS = {
    State.OPEN: ("BreakerOpened", EventType.WARNING),
    State.HALF_OPEN: ("BreakerHalfOpen", EventType.NORMAL),
    State.CLOSED: ("BreakerClosed", EventType.NORMAL),
    State.FORCED_OPEN: ("BreakerForcedOpen", EventType.WARNING),
    State.FORCED_CLOSED: ("BreakerForcedClosed", EventType.WARNING),
}
_HELD = "BreakerTripHeld"
_ACTION = "MoveBreaker"


def happening_of(transition: Transition, policy: Regarding) -> Happening | None:
    """Return the Event; None if there is none to send. A trip held back each second is reported once a minute.

    Service, generation and the time in the breaker's record identify the Event for all replicas. A generation alone is
    not unique: it restarts with an empty store.
    """
    at_ns = transition.at_us * 1000
    if transition.is_change:
        reason, kind = _REASONS[transition.new]
        change = f"was {transition.old}, is {transition.new}: {transition.reason}"
        occasion = f"{transition.service} {transition.generation} {transition.at_us}"
    elif transition.is_held_back:
        reason, kind, change = _HELD, EventType.WARNING, f"stays {transition.new}: {transition.reason}"
        occasion = f"{transition.service} {transition.generation} {minute_of(at_ns)}"
    else:
        return None
    note = f"service {transition.service}: the breaker {change} (generation {transition.generation})"
    return Happening(policy, kind, reason, _ACTION, note, occasion, at_ns, of_version=False)
