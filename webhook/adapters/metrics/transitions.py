"""Counters of breaker transitions, held-back trips and expired probes, labelled by cause."""

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Totals
from webhook.core.breaker import Transition, TransitionCause

_FORCED = "forced"


def reason_label(cause: TransitionCause) -> str:
    """Return the value of the label `reason`: the cause, or one word for both forced states."""
    return _FORCED if cause in {TransitionCause.FORCED_OPEN, TransitionCause.FORCED_CLOSED} else cause.value


class Transitions:
    """Totals by service."""

    def __init__(self) -> None:
        self._changes = Totals(families.BREAKER_TRANSITIONS)
        self._held = Totals(families.BREAKER_HELD)
        self._expired = Totals(families.BREAKER_EXPIRED)
        self.totals = (self._changes, self._held, self._expired)

    def add(self, transition: Transition) -> None:
        if transition.is_change:
            self._changes.add(transition.service, transition.old, transition.new, reason_label(transition.cause))
        elif transition.is_held_back:
            self._held.add(transition.service)
        else:
            self._expired.add(transition.service)
