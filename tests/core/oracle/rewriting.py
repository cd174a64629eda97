"""All faults of a rewritten Pod, from the original Pod and the placement that owns it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.core.oracle import pod_affinity, pod_metadata, policy
from tests.core.oracle.classes import class_faults
from tests.core.oracle.nodes import PREFERRED, REQUIRED, Json
from tests.core.oracle.ranges import range_faults, written_faults
from tests.core.oracle.required import required_faults
from tests.core.oracle.taints import toleration_faults

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


def normal(value: Any) -> Any:
    """Return JSON without null fields, which the API server ignores."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items() if item is not None}
    return [normal(item) for item in value] if isinstance(value, list) else value


def faults(
    before: Json, after: Json, placement: Json, service: str, policy_hash: str, resources: dict[str, Any] | None = None
) -> list[str]:
    """Return all faults of `after`; none if it is the correct rewrite of `before`.

    `resources`: the stanza of that name; without it, containers must be unchanged.
    """
    raw, final = before, after
    placement = policy.of_class(policy.beside(placement, before), after)
    old, new = normal(before), normal(after)
    owned = OWNED if resources is None else OWNED | {"containers", "initContainers"}
    return [
        *_labels(
            old, new, placement, {"labels": (SERVICE_LABEL, service), "annotations": (HASH_ANNOTATION, policy_hash)}
        ),
        *_same("what is beside metadata and spec", _but(old, {"metadata", "spec"}), _but(new, {"metadata", "spec"})),
        *_same("the rest of the spec", _but(old["spec"], owned), _but(new["spec"], owned)),
        *_node_selector(old, new, placement),
        *([] if resources is None else [*range_faults(old, new, resources), *written_faults(old, new, resources)]),
        *class_faults(old, new, placement),
        *required_faults(raw, final, placement),
        *_affinity(old, new, placement),
        *toleration_faults(old, new, placement),
        *_spreads(old, new, policy.spreads(placement, service), policy.rule(placement, "topologySpreadConstraints")),
    ]


def _but(found: Json, fields: set[str]) -> Json:
    return {key: value for key, value in found.items() if key not in fields}


def _same(what: str, one: Any, other: Any) -> Iterator[str]:
    if one != other:
        yield f"{what}: was {one}, is {other}"


def _labels(old: Json, new: Json, placement: Json, podgates: dict[str, tuple[str, str]]) -> Iterator[str]:
    yield from _same(
        "the rest of the metadata", _but(old["metadata"], set(podgates)), _but(new["metadata"], set(podgates))
    )
    for field, (key, value) in podgates.items():
        expected = {**pod_metadata.rewritten(old, placement, field), key: value}
        yield from _same(field, expected, new["metadata"].get(field))


def _node_selector(old: Json, new: Json, placement: Json) -> Iterator[str]:
    own = old["spec"].get("nodeSelector")
    wanted = placement.get("nodeSelector") or {}
    if policy.rule(placement, "nodeSelector") != "Override":
        wanted = {key: value for key, value in wanted.items() if key not in (own or {})}
    expected = {**(own or {}), **wanted} if wanted else own
    yield from _same("nodeSelector", expected, new["spec"].get("nodeSelector"))


MeaningOf = Callable[[Json, Json], pod_affinity.Meaning]
"""A function that returns the meaning of an item in a Pod."""
_APPENDED: tuple[tuple[str, str, MeaningOf], ...] = (
    ("podAffinity", REQUIRED, pod_affinity.pod_term),
    ("podAffinity", PREFERRED, pod_affinity.weighted_pod_term),
    ("podAntiAffinity", REQUIRED, pod_affinity.pod_term),
    ("podAntiAffinity", PREFERRED, pod_affinity.weighted_pod_term),
    ("nodeAffinity", PREFERRED, pod_affinity.preference),
)


def _affinity(old: Json, new: Json, placement: Json) -> Iterator[str]:
    """Check the affinity except for required node terms, which `required` checks."""
    before, after = _of(old["spec"], "affinity"), _of(new["spec"], "affinity")
    kinds = {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    yield from _same("the rest of the affinity", _but(before, kinds), _but(after, kinds))
    for kind in sorted(kinds):
        mine, final = (_but(_of(one, kind), {REQUIRED, PREFERRED}) for one in (before, after))
        yield from _same(f"the rest of {kind}", mine, final)
    for kind, strength, meaning in _APPENDED:
        wanted = policy.pod_terms(placement, kind, strength)
        if kind == "nodeAffinity":
            wanted = policy.preferences(placement)
        # The meaning of a selector depends on the Pod's labels, and the patch writes Podgate's label.
        own, both = _of(before, kind).get(strength), _of(after, kind).get(strength)
        yield from _appended(f"{kind}.{strength}", own, both, wanted, meaning, new)


def _of(found: Json, field: str) -> Json:
    inner: Json = found.get(field) or {}
    return inner


def _appended(
    what: str,
    before: list[Json] | None,
    after: list[Json] | None,
    wanted: Sequence[Json],
    meaning_of: MeaningOf,
    pod: Json,
) -> Iterator[str]:
    """Check a list to which items are appended: the user's own come first, unchanged; then each missing item once."""
    own = before or []
    lacking = {meaning_of(one, pod) for one in wanted} - {meaning_of(one, pod) for one in own}
    if not lacking:
        yield from _same(what, before, after)
        return
    user_items, appended_items = (after or [])[: len(own)], [meaning_of(one, pod) for one in (after or [])[len(own) :]]
    yield from _same(f"{what}, the user's own", own, user_items)
    yield from _same(f"{what}, ours", lacking, set(appended_items))
    if len(appended_items) > len(lacking):
        yield f"{what}: ours are there more than once"


def _spreads(old: Json, new: Json, wanted: Sequence[Json], rule: str) -> Iterator[str]:
    own = old["spec"].get("topologySpreadConstraints")
    expected = [pod_affinity.spread(one, new) for one in own or []]
    kinds = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in own or []]
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
        yield from _same("topologySpreadConstraints", own, final)
        return
    yield from _same("topologySpreadConstraints", expected, [pod_affinity.spread(one, new) for one in final or []])
    kept = [one for one in own or [] if pod_affinity.spread(one, new) in expected]
    if not all(one in (final or []) for one in kept):
        yield f"topologySpreadConstraints: the user's own {kept} are not there as they were: {final}"
