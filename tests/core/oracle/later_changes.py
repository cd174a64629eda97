"""Changes that a later webhook may make to a rewritten Pod: every single deviation."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tests.core.oracle.nodes import REQUIRED, Json

Change = tuple[str, dict[str, Any]]
_ELSEWHERE: Json = {"matchExpressions": [{"key": "elsewhere.io/x", "operator": "Exists"}]}
_KINDS = ("nodeAffinity", "podAffinity", "podAntiAffinity")


def list_damaged_pods(pod: Json) -> Iterator[Change]:
    """Yield each Pod with one field removed or changed, and a description of the change."""
    spec = pod["spec"]
    yield from _damage_metadata(pod)
    for field in ("schedulerName", "priorityClassName", "runtimeClassName"):
        for value in ("another", None):
            if spec.get(field) != value:
                yield _replace_value(pod, (field,), value, f"{field} is {value}")
    for key in spec.get("nodeSelector") or {}:
        yield _replace_value(pod, ("nodeSelector", key), "another", f"nodeSelector {key} is another")
        yield _remove_value(pod, ("nodeSelector", key), f"nodeSelector {key} is gone")
    for field in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"):
        if spec.get(field):
            yield _remove_value(pod, (field,), f"{field} is gone")
    for field in ("tolerations", "topologySpreadConstraints"):
        for index in range(len(spec.get(field) or [])):
            yield _remove_value(pod, (field, index), f"{field}[{index}] is gone")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or []):
        path = ("topologySpreadConstraints", index, "maxSkew")
        yield _replace_value(pod, path, constraint["maxSkew"] + 1, f"topologySpreadConstraints[{index}] is wider")
    yield from _damage_affinities(pod, spec.get("affinity") or {})


def _damage_affinities(pod: Json, affinity: Json) -> Iterator[Change]:
    for kind in _KINDS:
        if affinity.get(kind):
            yield _remove_value(pod, ("affinity", kind), f"{kind} is gone")
    for kind in _KINDS[1:]:
        for index in range(len((affinity.get(kind) or {}).get(REQUIRED) or [])):
            path = ("affinity", kind, REQUIRED, index)
            yield _remove_value(pod, path, f"{kind}[{index}] is gone")
            yield _replace_value(
                pod, (*path, "topologyKey"), "elsewhere.io/x", f"{kind}[{index}] has another topologyKey"
            )
    node = affinity.get("nodeAffinity") or {}
    if node.get(REQUIRED) is not None:
        yield from _damage_terms(
            pod, ("affinity", "nodeAffinity", REQUIRED), node[REQUIRED].get("nodeSelectorTerms") or []
        )


def _damage_terms(pod: Json, selector: tuple[str, ...], terms: list[Json]) -> Iterator[Change]:
    yield _remove_value(pod, selector, "required node affinity is gone")
    path = (*selector, "nodeSelectorTerms")
    yield _replace_value(pod, path, [*terms, _ELSEWHERE], "another term is ORed")
    for index, term in enumerate(terms):
        if len(terms) > 1:
            yield _remove_value(pod, (*path, index), f"term {index} is gone")
        for field in ("matchExpressions", "matchFields"):
            for place, expression in enumerate(term.get(field) or []):
                yield _remove_value(pod, (*path, index, field, place), f"term {index} has lost {expression}")
                values = [*(expression.get("values") or []), "another"]
                if expression["operator"] == "In" and field == "matchExpressions":
                    yield _replace_value(
                        pod, (*path, index, field, place, "values"), values, f"term {index} is wider in {expression}"
                    )


def _damage_metadata(pod: Json) -> Iterator[Change]:
    for kind in ("labels", "annotations"):
        own = pod["metadata"].get(kind) or {}
        for key in [key for key in own if "podgate.io" not in key]:
            yield f"{kind} {key} is another", _replace_metadata(pod, kind, {**own, key: "another"})
            yield (
                f"{kind} {key} is gone",
                _replace_metadata(pod, kind, {name: own[name] for name in own if name != key}),
            )


def _replace_metadata(pod: Json, kind: str, values: Json) -> dict[str, Any]:
    return {**deepcopy(dict(pod)), "metadata": {**pod["metadata"], kind: values}}


def _replace_value(pod: Json, path: tuple[str | int, ...], value: Any, description: str) -> Change:
    found, parent = _copy_and_parent(pod, path)
    parent[path[-1]] = value
    return description, found


def _remove_value(pod: Json, path: tuple[str | int, ...], description: str) -> Change:
    found, parent = _copy_and_parent(pod, path)
    del parent[path[-1]]
    return description, found


def _copy_and_parent(pod: Json, path: tuple[str | int, ...]) -> tuple[dict[str, Any], Any]:
    found: dict[str, Any] = deepcopy(dict(pod))
    parent: Any = found["spec"]
    for step in path[:-1]:
        parent = parent[step]
    return found, parent
