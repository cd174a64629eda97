"""A service's SLA breaker: a pure state machine, and the words of what it is told and says.

`law` is what may happen; `passing` lets time pass, `probes` lets Pods in, `hearing` takes outcomes and refusals,
`hands` what comes from outside; `forks` says which of two accounts holds. Each takes a `record` and returns the next
one, with what happened on the way.
"""

from webhook.core.breaker.advance import advance, restarted, rests_until_us, view
from webhook.core.breaker.forks import holds, offer
from webhook.core.breaker.manual import by_hand, excuse
from webhook.core.breaker.outcomes import hear, quota_event
from webhook.core.breaker.plans import BreakerPlan, ErrorRatePlan, Forcing, LatencyPlan, QuotaEventPlan, span
from webhook.core.breaker.probes import admits, give_back_probe, may_probe_early, take_probe
from webhook.core.breaker.record import ALONE, Around, Record, Step, from_view, moved, outranks, shown
from webhook.core.breaker.states import EXPIRED, HELD, BreakerView, State, Transition
from webhook.core.breaker.transitions import TRANSITIONS, Cause

__all__ = [
    "ALONE",
    "EXPIRED",
    "HELD",
    "TRANSITIONS",
    "Around",
    "BreakerPlan",
    "BreakerView",
    "Cause",
    "ErrorRatePlan",
    "Forcing",
    "LatencyPlan",
    "QuotaEventPlan",
    "Record",
    "State",
    "Step",
    "Transition",
    "admits",
    "advance",
    "by_hand",
    "excuse",
    "from_view",
    "give_back_probe",
    "hear",
    "holds",
    "may_probe_early",
    "moved",
    "offer",
    "outranks",
    "quota_event",
    "restarted",
    "rests_until_us",
    "shown",
    "span",
    "take_probe",
    "view",
]
