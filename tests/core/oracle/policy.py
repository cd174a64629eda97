"""The requirements of a placement, read from the document's JSON."""

from typing import Any

from tests.core.api_server import apply_defaults, compute_qos_class
from tests.core.oracle.nodes import PREFERRED, REQUIRED, Json

LEVELS = {"Region": "topology.kubernetes.io/region", "Zone": "topology.kubernetes.io/zone"}
SERVICE_LABEL = "podgate.io/service"


def find_rule(placement: Json, field: str) -> str:
    """Return the `onConflict` rule of a field: Deny, Keep or Override."""
    rules = placement.get("onConflict") or {}
    chosen: str = rules.get(field) or rules.get("default") or "Deny"
    return chosen


def _label(entry: Json) -> str:
    return LEVELS[entry["level"]] if entry.get("level") else entry["key"]


def _topology(placement: Json, *, preferred: bool) -> list[tuple[Json, Json]]:
    """Return the required or preferred entries, each with its expression."""
    return [
        (entry, {"key": _label(entry), "operator": "In", "values": list(entry["in"])})
        for entry in placement.get("topology") or []
        if (entry.get("preferredWeight") is not None) is preferred
    ]


def _affinity(placement: Json, kind: str, strength: str) -> Any:
    return ((placement.get("affinity") or {}).get(kind) or {}).get(strength)


def find_required_terms(placement: Json) -> list[Json] | None:
    """Return the ORed required terms; None if every node is allowed.

    An empty native term matches nothing, so it is omitted rather than extended by topology.
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


def find_preferences(placement: Json) -> list[Json]:
    native: list[Json] = _affinity(placement, "nodeAffinity", PREFERRED) or []
    topology = [
        {"weight": entry["preferredWeight"], "preference": {"matchExpressions": [expression]}}
        for entry, expression in _topology(placement, preferred=True)
    ]
    return [*native, *topology]


def find_pod_terms(placement: Json, kind: str, strength: str) -> list[Json]:
    return _affinity(placement, kind, strength) or []


def drop_absent_fields(placement: Json, pod: Json) -> Json:
    """Return the placement without the fields of `ifAbsent` that a Pod has itself."""
    if not placement.get("ifAbsent"):
        return placement
    spec, affinity = pod["spec"], placement.get("affinity") or {}
    anti_affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    own = {
        "topologySpreadConstraints": spec.get("topologySpreadConstraints"),
        "podAntiAffinity": anti_affinity.get(REQUIRED) or anti_affinity.get(PREFERRED),
    }
    has = {field for field in placement["ifAbsent"] if own[field]}
    found = {field: value for field, value in placement.items() if field not in has}
    return {**found, "affinity": {kind: terms for kind, terms in affinity.items() if kind not in has}}


def select_tolerations(placement: Json, final: Json) -> Json:
    """Return the placement with the tolerations of the QoS class that a Pod has once its resources are written."""
    by_class = placement.get("tolerationsByQosClass")
    if not by_class:
        return placement
    more = by_class.get(compute_qos_class(apply_defaults(dict(final)))) or []
    return {**placement, "tolerations": [*(placement.get("tolerations") or []), *more]}


def find_spreads(placement: Json, service: str) -> list[Json]:
    """Return the constraints; those without a selector select the service's own Pods."""
    own = {"matchLabels": {SERVICE_LABEL: service}}
    return [
        constraint if constraint.get("labelSelector") is not None else {**constraint, "labelSelector": own}
        for constraint in placement.get("topologySpreadConstraints") or []
    ]


def is_priority_of_user(pod: Json) -> bool:
    """Return whether the user chose the Pod's priority class, rather than the default of the cluster."""
    entries = pod["metadata"].get("managedFields")
    if not entries:
        return True
    return any("f:priorityClassName" in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) for entry in entries)
