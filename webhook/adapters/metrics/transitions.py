"""What breakers did, and why, as one of a few fixed words: free text never becomes a label."""

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Totals
from webhook.core.breaker import EXPIRED, HELD, State, Transition, TransitionCause

OTHER = "other"

_AUTOMATIC = {
    (State.OPEN, State.HALF_OPEN): "openForPassed",
    (State.HALF_OPEN, State.CLOSED): "probesSucceeded",
    (State.OPEN, State.CLOSED): "probesSucceeded",  # by early probes
    (State.HALF_OPEN, State.OPEN): "probeFailed",
}
_FORCED = (State.FORCED_OPEN, State.FORCED_CLOSED)
_TRIPS = frozenset({"errorRate", "latency", "quotaExceeded"})


def reason_word(transition: Transition) -> str:
    """Return the label for a transition's reason."""
    if transition.new in _FORCED:
        return "forced"
    if transition.old in _FORCED:
        return "released"
    if transition.reason == TransitionCause.RESET.value:
        return "reset"
    word = _AUTOMATIC.get((transition.old, transition.new))
    if word is not None:
        return word
    # The breaker's plans begin a trip's reason with the name of the stanza that tripped.
    trigger = transition.reason.partition(":")[0]
    return trigger if trigger in _TRIPS else OTHER


class Transitions:
    """Counts what breakers did."""

    def __init__(self) -> None:
        self._changes = Totals(families.BREAKER_TRANSITIONS)
        self._held = Totals(families.BREAKER_HELD)
        self._expired = Totals(families.BREAKER_EXPIRED)
        self.totals = (self._changes, self._held, self._expired)

    def add(self, transition: Transition) -> None:
        if transition.is_change:
            self._changes.add(transition.service, transition.old, transition.new, reason_word(transition))
        elif transition.reason.startswith(HELD):
            self._held.add(transition.service)
        elif transition.reason == EXPIRED:
            self._expired.add(transition.service)
