"""SLA breaker of one service, a pure state machine.

`transitions` is the transition table. `trip_detection` counts outcomes and quota denials and finds that a threshold was
crossed; `advance` applies the passage of time and opens the breaker; `outcome_counting` records reported outcomes and
quota denials; `probes` admits probes; `manual` applies overrides; `forks` resolves conflicts between divergent states.
Their functions take a `Record` and return the next one, most of them with the transitions between the two. How they
rely on each other: docs/design/breaker-operation.md.
"""

from webhook.core.breaker.advance import advance, find_rest_end_us, restart, view
from webhook.core.breaker.forks import apply_proposal, is_winning
from webhook.core.breaker.manual import apply_override, suppress_quota_events
from webhook.core.breaker.outcome_counting import record_outcomes, record_quota_event
from webhook.core.breaker.plans import (
    BreakerPlan,
    ErrorRatePlan,
    Forcing,
    LatencyPlan,
    QuotaEventPlan,
    UnschedulablePlan,
    format_duration,
)
from webhook.core.breaker.probes import can_admit, give_back_probe, may_probe_early, take_probe
from webhook.core.breaker.record import (
    ALONE,
    BreakerEnvironment,
    BreakerStep,
    Record,
    build_view,
    from_view,
    has_moved,
    is_newer_view,
)
from webhook.core.breaker.states import (
    EXPIRED,
    HELD,
    TRIGGERS,
    BreakerOwner,
    BreakerView,
    State,
    Transition,
    TransitionCause,
)
from webhook.core.breaker.transitions import TRANSITIONS

__all__ = [
    "ALONE",
    "EXPIRED",
    "HELD",
    "TRANSITIONS",
    "TRIGGERS",
    "BreakerEnvironment",
    "BreakerOwner",
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
    "UnschedulablePlan",
    "advance",
    "apply_override",
    "apply_proposal",
    "build_view",
    "can_admit",
    "find_rest_end_us",
    "format_duration",
    "from_view",
    "give_back_probe",
    "has_moved",
    "is_newer_view",
    "is_winning",
    "may_probe_early",
    "record_outcomes",
    "record_quota_event",
    "restart",
    "suppress_quota_events",
    "take_probe",
    "view",
]
