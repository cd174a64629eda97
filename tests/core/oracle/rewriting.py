"""All faults of a rewritten Pod, from the original Pod and the placement that owns it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.core.oracle import pod_affinity, pod_metadata, policy
from tests.core.oracle.classes import find_class_faults
from tests.core.oracle.nodes import PREFERRED, REQUIRED, Json
from tests.core.oracle.ranges import find_range_faults, find_written_faults
from tests.core.oracle.required import find_required_faults
from tests.core.oracle.taints import find_toleration_faults

SERVICE_LABEL = "podgate.io/service"
HASH_ANNOTATION = "podgate.io/policy-hash"
OWNED = {
    "affinity",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
}


def remove_nulls(value: Any) -> Any:
    """Return JSON without null fields, which the API server ignores."""
    if isinstance(value, dict):
        return {key: remove_nulls(item) for key, item in value.items() if item is not None}
    return [remove_nulls(item) for item in value] if isinstance(value, list) else value


def find_faults(
    before: Json, after: Json, placement: Json, service: str, policy_hash: str, resources: dict[str, Any] | None = None
) -> list[str]:
    """Return all faults of `after`; none if it is the correct rewrite of `before`.

    `resources`: the stanza of that name; without it, containers must be unchanged.
    """
    raw, final = before, after
    placement = policy.select_tolerations(policy.drop_absent_fields(placement, before), after)
    old, new = remove_nulls(before), remove_nulls(after)
    owned = OWNED if resources is None else OWNED | {"containers", "initContainers"}
    return [
        *_check_labels(
            old, new, placement, {"labels": (SERVICE_LABEL, service), "annotations": (HASH_ANNOTATION, policy_hash)}
        ),
        *_compare(
            "what is beside metadata and spec", _omit(old, {"metadata", "spec"}), _omit(new, {"metadata", "spec"})
        ),
        *_compare("the rest of the spec", _omit(old["spec"], owned), _omit(new["spec"], owned)),
        *_check_node_selector(old, new, placement),
        *(
            []
            if resources is None
            else [*find_range_faults(old, new, resources), *find_written_faults(old, new, resources)]
        ),
        *find_class_faults(old, new, placement),
        *find_required_faults(raw, final, placement),
        *_check_affinity(old, new, placement),
        *find_toleration_faults(old, new, placement),
        *_check_spreads(
            old, new, policy.find_spreads(placement, service), policy.find_rule(placement, "topologySpreadConstraints")
        ),
    ]


def _omit(found: Json, fields: set[str]) -> Json:
    return {key: value for key, value in found.items() if key not in fields}


def _compare(what: str, one: Any, other: Any) -> Iterator[str]:
    if one != other:
        yield f"{what}: was {one}, is {other}"


def _check_labels(old: Json, new: Json, placement: Json, podgates: dict[str, tuple[str, str]]) -> Iterator[str]:
    yield from _compare(
        "the rest of the metadata", _omit(old["metadata"], set(podgates)), _omit(new["metadata"], set(podgates))
    )
    for field, (key, value) in podgates.items():
        expected = {**pod_metadata.rewrite_metadata(old, placement, field), key: value}
        yield from _compare(field, expected, new["metadata"].get(field))


def _check_node_selector(old: Json, new: Json, placement: Json) -> Iterator[str]:
    own = old["spec"].get("nodeSelector")
    wanted = placement.get("nodeSelector") or {}
    if policy.find_rule(placement, "nodeSelector") != "Override":
        wanted = {key: value for key, value in wanted.items() if key not in (own or {})}
    expected = {**(own or {}), **wanted} if wanted else own
    yield from _compare("nodeSelector", expected, new["spec"].get("nodeSelector"))


MeaningOf = Callable[[Json, Json], pod_affinity.Meaning]
"""A function that returns the meaning of an item in a Pod."""
_APPENDED: tuple[tuple[str, str, MeaningOf], ...] = (
    ("podAffinity", REQUIRED, pod_affinity.find_pod_term),
    ("podAffinity", PREFERRED, pod_affinity.find_weighted_pod_term),
    ("podAntiAffinity", REQUIRED, pod_affinity.find_pod_term),
    ("podAntiAffinity", PREFERRED, pod_affinity.find_weighted_pod_term),
    ("nodeAffinity", PREFERRED, pod_affinity.preference),
)


def _check_affinity(old: Json, new: Json, placement: Json) -> Iterator[str]:
    """Check the affinity except for required node terms, which `required` checks."""
    before, after = _get_object(old["spec"], "affinity"), _get_object(new["spec"], "affinity")
    kinds = {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    yield from _compare("the rest of the affinity", _omit(before, kinds), _omit(after, kinds))
    for kind in sorted(kinds):
        mine, final = (_omit(_get_object(pod, kind), {REQUIRED, PREFERRED}) for pod in (before, after))
        yield from _compare(f"the rest of {kind}", mine, final)
    for kind, strength, meaning in _APPENDED:
        wanted = policy.find_pod_terms(placement, kind, strength)
        if kind == "nodeAffinity":
            wanted = policy.find_preferences(placement)
        # The meaning of a selector depends on the Pod's labels, and the patch writes Podgate's label.
        own, both = _get_object(before, kind).get(strength), _get_object(after, kind).get(strength)
        yield from _check_appended(f"{kind}.{strength}", own, both, wanted, meaning, new)


def _get_object(found: Json, field: str) -> Json:
    inner: Json = found.get(field) or {}
    return inner


def _check_appended(
    what: str,
    before: list[Json] | None,
    after: list[Json] | None,
    wanted: Sequence[Json],
    meaning_of: MeaningOf,
    pod: Json,
) -> Iterator[str]:
    """Check a list to which items are appended: the user's own come first, unchanged; then each missing item once."""
    own = before or []
    lacking = {meaning_of(term, pod) for term in wanted} - {meaning_of(term, pod) for term in own}
    if not lacking:
        yield from _compare(what, before, after)
        return
    user_items = (after or [])[: len(own)]
    appended_items = [meaning_of(term, pod) for term in (after or [])[len(own) :]]
    yield from _compare(f"{what}, the user's own", own, user_items)
    yield from _compare(f"{what}, ours", lacking, set(appended_items))
    if len(appended_items) > len(lacking):
        yield f"{what}: ours are there more than once"


def _check_spreads(old: Json, new: Json, wanted: Sequence[Json], rule: str) -> Iterator[str]:
    own = old["spec"].get("topologySpreadConstraints")
    expected = [pod_affinity.spread(constraint, new) for constraint in own or []]
    kinds = [(constraint["topologyKey"], constraint["whenUnsatisfiable"]) for constraint in own or []]
    touched = False
    for constraint in wanted:
        meaning = pod_affinity.spread(constraint, new)
        kind = constraint["topologyKey"], constraint["whenUnsatisfiable"]
        if kind not in kinds:
            expected, touched = [*expected, meaning], True
        elif expected[kinds.index(kind)] != meaning and rule == "Override":
            expected[kinds.index(kind)], touched = meaning, True
    final = new["spec"].get("topologySpreadConstraints")
    if not touched:
        yield from _compare("topologySpreadConstraints", own, final)
        return
    yield from _compare(
        "topologySpreadConstraints", expected, [pod_affinity.spread(constraint, new) for constraint in final or []]
    )
    kept = [constraint for constraint in own or [] if pod_affinity.spread(constraint, new) in expected]
    if not all(constraint in (final or []) for constraint in kept):
        yield f"topologySpreadConstraints: the user's own {kept} are not there as they were: {final}"
