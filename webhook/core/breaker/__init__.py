"""SLA breaker of one service, a pure state machine.

`transitions` is the transition table. `triggers` counts outcomes and quota denials and finds that a threshold was
crossed; `advance` applies the passage of time and opens the breaker; `outcome_counting` records reported outcomes and
quota denials; `probes` admits probes; `manual` applies overrides; `forks` resolves conflicts between divergent states.
Their functions take a `Record` and return the next one, most of them with the transitions between the two. How they
rely on each other: docs/design/breaker-operation.md.
"""

from webhook.core.breaker.advance import advance, restarted, rests_until_us, view
from webhook.core.breaker.forks import holds, propose
from webhook.core.breaker.manual import apply_override, suppress_quota_events
from webhook.core.breaker.outcome_counting import quota_event, record_outcomes
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
