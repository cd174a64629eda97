"""Labels and annotations that a placement sets on a Pod of the generated Namespace, and what a Pod may bring."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from tests.core.generating.tolerations import FILLED_IN
from tests.core.generating.vocabulary import NAMESPACE_LABELS
from tests.core.oracle import policy
from tests.core.oracle.classes import DEFAULT_SCHEDULER
from tests.core.oracle.nodes import Json
from tests.core.oracle.taints import is_covering


def find_wanted(pod: Json, placement: Json, field: str) -> Json:
    """Return the policy's labels or annotations for a Pod."""
    found = {}
    for key, value in (placement.get(field) or {}).items():
        if isinstance(value, str):
            found[key] = value
        elif "fromPod" in value:
            found[key] = (pod["metadata"].get("labels") or {}).get(value["fromPod"], value.get("default"))
        else:
            found[key] = NAMESPACE_LABELS.get(value["fromNamespace"], value.get("default"))
    return {key: value for key, value in found.items() if value is not None}


def rewrite_metadata(pod: Json, placement: Json, field: str) -> Json:
    """Return a Pod's labels or annotations after the rewrite, without Podgate's own."""
    own, ours = pod["metadata"].get(field) or {}, find_wanted(pod, placement, field)
    return {**own, **ours} if policy.find_rule(placement, field) == "Override" else {**ours, **own}


def find_not_allowed(pod: Json, placement: Json) -> Iterator[str]:
    """Yield the fields with values that `allow` does not list."""
    allow, spec = placement.get("allow") or {}, pod["spec"]
    listed = allow.get("tolerations")
    if listed is not None:
        permitted = [*listed, *(placement.get("tolerations") or []), *FILLED_IN]
        if not all(
            any(_is_covering(toleration, own) for toleration in permitted) for own in spec.get("tolerations") or []
        ):
            yield "spec.tolerations"
    keys = allow.get("nodeSelectorKeys")
    if keys is not None and not set(spec.get("nodeSelector") or {}) <= {*keys, *(placement.get("nodeSelector") or {})}:
        yield "spec.nodeSelector"
    for field, names in (
        ("schedulerName", allow.get("schedulerNames")),
        ("priorityClassName", allow.get("priorityClassNames")),
        ("runtimeClassName", allow.get("runtimeClassNames")),
    ):
        nobodys = {"", DEFAULT_SCHEDULER} if field == "schedulerName" else {""}
        is_free = placement.get(field) is None or policy.find_rule(placement, field) == "Keep"
        own = spec.get(field) or ""
        if field == "priorityClassName" and not policy.is_priority_of_user(pod):
            continue
        if names is None or not is_free or own in {*nobodys, placement.get(field)}:
            continue
        if not any(fnmatchcase(own, name) for name in names):
            yield f"spec.{field}"


def _is_covering(listed: Json, own: Json) -> bool:
    """Return whether one toleration covers another: no wider in key, and for all taints that tests distinguish."""
    is_wider = not own.get("key") and listed.get("key")
    return not is_wider and is_covering(listed, own)
