"""The requirements of a placement, read from the document's JSON."""

from typing import Any

from tests.core.oracle.nodes import PREFERRED, REQUIRED, Json

LEVELS = {"Region": "topology.kubernetes.io/region", "Zone": "topology.kubernetes.io/zone"}
SERVICE_LABEL = "podgate.io/service"


def rule(placement: Json, field: str) -> str:
    """Return what to do about a conflict in a field: Deny, Keep or Override."""
    rules = placement.get("onConflict") or {}
    chosen: str = rules.get(field) or rules.get("default") or "Deny"
    return chosen


def _label(entry: Json) -> str:
    return LEVELS[entry["level"]] if entry.get("level") else entry["key"]


def _topology(placement: Json, *, preferred: bool) -> list[tuple[Json, Json]]:
    """Return the entries of one kind, each with the expression that it means."""
    return [
        (entry, {"key": _label(entry), "operator": "In", "values": list(entry["in"])})
        for entry in placement.get("topology") or []
        if (entry.get("preferredWeight") is not None) is preferred
    ]


def _affinity(placement: Json, kind: str, strength: str) -> Any:
    return ((placement.get("affinity") or {}).get(kind) or {}).get(strength)


def required_terms(placement: Json) -> list[Json] | None:
    """Return the terms of which a node must fit one; None if any node will do.

    A native term that matches nothing matches nothing in any region either.
    """
    topology = [expression for _, expression in _topology(placement, preferred=False)]
    native = (_affinity(placement, "nodeAffinity", REQUIRED) or {}).get("nodeSelectorTerms")
    if native is None:
        return [{"matchExpressions": topology}] if topology else None
    return [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *topology]}
        for term in native
        if term.get("matchExpressions") or term.get("matchFields")
    ]


def preferences(placement: Json) -> list[Json]:
    native: list[Json] = _affinity(placement, "nodeAffinity", PREFERRED) or []
    topology = [
        {"weight": entry["preferredWeight"], "preference": {"matchExpressions": [expression]}}
        for entry, expression in _topology(placement, preferred=True)
    ]
    return [*native, *topology]


def pod_terms(placement: Json, kind: str, strength: str) -> list[Json]:
    return _affinity(placement, kind, strength) or []


def spreads(placement: Json, service: str) -> list[Json]:
    """Return the constraints, those without a selector spread the service's own Pods."""
    own = {"matchLabels": {SERVICE_LABEL: service}}
    return [
        one if one.get("labelSelector") is not None else {**one, "labelSelector": own}
        for one in placement.get("topologySpreadConstraints") or []
    ]


def chose_his_priority(pod: Json) -> bool:
    """Say whether a Pod's priority class is the user's own choice, not the global default filled in."""
    entries = pod["metadata"].get("managedFields")
    if not entries:
        return True
    return any("f:priorityClassName" in ((one.get("fieldsV1") or {}).get("f:spec") or {}) for one in entries)
