"""Variant states: the present breakers of a service's variants, by a server's status document."""

from collections.abc import Mapping
from typing import Any

from webhook.core.diagnosis.report import VariantReport

_TAKES_PODS = frozenset({"CLOSED", "FORCED_CLOSED"})


def list_variant_states(shares: Mapping[str, Any]) -> tuple[VariantReport, ...]:
    """Return the variants of a service in the order of the policy; `shares` is a part of `GET /status`.

    An older server has no `ofCandidate`. Where Pods of a candidate's variant go instead is not known.
    """
    rows = shares["variants"]
    own = [row for row in rows if not row.get("ofCandidate")]
    return tuple(_build_report(row, own[own.index(row) + 1 :] if row in own else ()) for row in rows)


def _build_report(row: Mapping[str, Any], following: Any) -> VariantReport:
    breaker = row["breaker"]
    if breaker is None:
        return VariantReport(row["name"], has_breaker=row["hasBreaker"], of_candidate=bool(row.get("ofCandidate")))
    avoided = breaker["state"] not in _TAKES_PODS
    return VariantReport(
        row["name"],
        breaker["state"],
        reason=breaker["reason"] if avoided else "",
        until=breaker["openUntil"] or "",
        taken_by=next((other["name"] for other in following if _takes_pods(other)), "") if avoided else "",
        of_candidate=bool(row.get("ofCandidate")),
    )


def _takes_pods(row: Mapping[str, Any]) -> bool:
    """Return whether a variant gets the Pods of one before it. The last of the list always does."""
    breaker = row["breaker"]
    return not row["hasBreaker"] or (breaker is not None and breaker["state"] in _TAKES_PODS)
