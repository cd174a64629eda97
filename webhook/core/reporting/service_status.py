"""Status of a ServiceStatus object; without fields that change by time alone, so that it is rarely written."""

from typing import Any

from webhook.core.admission.messages.denials import utc
from webhook.core.breaker import BreakerView
from webhook.core.quota import CounterPlan


def service_status(plan: CounterPlan, view: BreakerView) -> dict[str, Any]:
    """Return `status`, ready for JSON; empty without a breaker in force. Absent values are left out.

    Times are UTC in RFC 3339 format. `openUntil` may be the end of a manual state.
    """
    if plan.breaker is None:
        return {}
    shown = {
        "state": str(view.state),
        "mode": str(plan.breaker_mode),
        "since": _moment(view.since_us),
        "reason": view.reason or None,
        "generation": view.generation,
        "trippedAt": _moment(view.tripped_at_us),
        "trippedBy": view.tripped_by or None,
        "openUntil": _moment(view.open_until_us),
        "probes": {
            "needed": plan.breaker.probes,
            "leased": view.probes_leased,
            "succeeded": view.probes_succeeded,
            "early": view.early,
        },
    }
    return {"breaker": {name: value for name, value in shown.items() if value is not None}}


def _moment(at_us: int) -> str | None:
    return utc(at_us) if at_us else None
