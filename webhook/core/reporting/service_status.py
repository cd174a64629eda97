"""Status of a ServiceStatus object; without fields that change by time alone, so that it is rarely written."""

from typing import Any

from webhook.core.admission.denials import utc
from webhook.core.breaker import BreakerView
from webhook.core.quota import CounterPlan


def service_status(plan: CounterPlan, view: BreakerView) -> dict[str, Any]:
    """Return `status`, ready for JSON; empty where no breaker is in force. What there is none of is left out.

    Times are UTC, as RFC 3339 writes them. `openUntil` is also when a hand lets go; who reads it can count down.
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
