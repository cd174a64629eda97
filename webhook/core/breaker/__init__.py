"""A service's SLA breaker: a pure state machine, and the words of what it is told and says.

`law` is what may happen; `passing` lets time pass, `probes` lets Pods in, `hearing` takes outcomes and refusals,
`hands` what comes from outside; `forks` says which of two accounts holds. Each takes a `record` and returns the next
one, with what happened on the way.
"""

from webhook.core.breaker.advance import advance, restarted, rests_until_us, view
from webhook.core.breaker.forks import holds, propose
from webhook.core.breaker.manual import apply_override, suppress_quota_events
from webhook.core.breaker.outcomes import quota_event, record_outcomes
from webhook.core.breaker.plans import BreakerPlan, ErrorRatePlan, Forcing, LatencyPlan, QuotaEventPlan, span
from webhook.core.breaker.probes import admits, give_back_probe, may_probe_early, take_probe
from webhook.core.breaker.record import (
    ALONE,
    BreakerEnvironment,
    BreakerStep,
    Record,
    from_view,
    moved,
    outranks,
    shown,
)
from webhook.core.breaker.states import EXPIRED, HELD, TRIGGERS, BreakerView, State, Transition, TransitionCause
from webhook.core.breaker.transitions import TRANSITIONS

__all__ = [
    "ALONE",
    "EXPIRED",
    "HELD",
    "TRANSITIONS",
    "TRIGGERS",
    "BreakerEnvironment",
    "BreakerPlan",
    "BreakerStep",
    "BreakerView",
    "ErrorRatePlan",
    "Forcing",
    "LatencyPlan",
    "QuotaEventPlan",
    "Record",
    "State",
    "Transition",
    "TransitionCause",
    "admits",
    "advance",
    "apply_override",
    "from_view",
    "give_back_probe",
    "holds",
    "may_probe_early",
    "moved",
    "outranks",
    "propose",
    "quota_event",
    "record_outcomes",
    "restarted",
    "rests_until_us",
    "shown",
    "span",
    "suppress_quota_events",
    "take_probe",
    "view",
]
