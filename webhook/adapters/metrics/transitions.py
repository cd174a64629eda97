"""Why a breaker changed its state, as one of a few fixed words: free text never becomes a label."""

from webhook.core.breaker import State, Transition

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
    word = _AUTOMATIC.get((transition.old, transition.new))
    if word is not None:
        return word
    # The breaker's plans begin a trip's reason with the name of the stanza that tripped.
    trigger = transition.reason.partition(":")[0]
    return trigger if trigger in _TRIPS else OTHER
