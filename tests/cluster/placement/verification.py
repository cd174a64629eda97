"""Verification of the final Pod by an independent model of Kubernetes and of the policy."""

from collections.abc import Iterable, Iterator
from typing import Any

from tests.cluster.placement.sample_run import Outcome
from tests.core.oracle import pod_affinity, pod_metadata, policy
from tests.core.oracle.classes import has_conflict
from tests.core.oracle.nodes import Node, is_any_term_match, is_selector_match, terms_of
from tests.core.ranges_model import parse_amounts

Json = dict[str, Any]

OWNED = (
    *("schedulerName", "nodeSelector", "affinity", "topologySpreadConstraints", "tolerations"),
    *("priorityClassName", "runtimeClassName"),
)
"""The fields of a Pod's spec that a placement can own, without fields that plugins compute from them."""


def index_nodes(items: Iterable[Json]) -> dict[str, Node]:
    """Return the nodes of a NodeList by their names."""
    node_list = [Node(item["metadata"]["name"], item["metadata"]["labels"]) for item in items]
    return {node.name: node for node in node_list}


def policy_allows(outcome: Outcome, node: Node) -> bool:
    """Whether the policy of the service alone allows a node."""
    placement, own_selector = outcome.case.placement, outcome.case.pod["spec"].get("nodeSelector") or {}
    required = dict(placement.get("nodeSelector") or {})
    if policy.find_rule(placement, "nodeSelector") == "Keep":
        required.update({key: own_selector[key] for key in required if key in own_selector})
    return is_selector_match(required, node) and is_any_term_match(policy.find_required_terms(placement), node)


def user_allows(outcome: Outcome, node: Node) -> bool:
    """Whether the user's own fields allow a node, unless the policy overrides them."""
    pod, placement = outcome.case.pod, outcome.case.placement
    own_selector = dict(pod["spec"].get("nodeSelector") or {})
    if policy.find_rule(placement, "nodeSelector") == "Override":
        own_selector.update(
            {key: value for key, value in (placement.get("nodeSelector") or {}).items() if key in own_selector}
        )
    return is_selector_match(own_selector, node) and is_any_term_match(terms_of(pod), node)


def list_denied_fields(outcome: Outcome) -> Iterator[str]:
    """Yield the fields of the user's Pod that conflict or are not allowed, as a denial names them."""
    pod = outcome.case.pod
    placement = policy.select_tolerations(policy.drop_absent_fields(outcome.case.placement, pod), pod)
    yield from pod_metadata.find_not_allowed(pod, placement)
    yield from _list_denied_metadata(pod, placement)
    for field in ("schedulerName", "priorityClassName", "runtimeClassName"):
        if has_conflict(pod, placement, field) and policy.find_rule(placement, field) == "Deny":
            yield f"spec.{field}"
    if policy.find_rule(placement, "nodeSelector") == "Deny":
        own_selector = pod["spec"].get("nodeSelector") or {}
        for key, value in (placement.get("nodeSelector") or {}).items():
            if own_selector.get(key, value) != value:
                yield f"spec.nodeSelector[{key}]"
    if policy.find_rule(placement, "topologySpreadConstraints") == "Deny":
        yield from _list_denied_spreads(pod, placement, outcome.case.service)


def _list_denied_metadata(pod: Json, placement: Json) -> Iterator[str]:
    for field in ("labels", "annotations"):
        if policy.find_rule(placement, field) == "Deny":
            own = pod["metadata"].get(field) or {}
            for key, value in pod_metadata.find_wanted(pod, placement, field).items():
                if own.get(key, value) != value:
                    yield f"metadata.{field}[{key}]"


def _list_denied_spreads(pod: Json, placement: Json, service: str) -> Iterator[str]:
    required = {
        (spread["topologyKey"], spread["whenUnsatisfiable"]): pod_affinity.spread(spread, pod)
        for spread in policy.find_spreads(placement, service)
    }
    for index, constraint in enumerate(pod["spec"].get("topologySpreadConstraints") or []):
        expected = required.get((constraint["topologyKey"], constraint["whenUnsatisfiable"]))
        if expected is not None and expected != pod_affinity.spread(constraint, pod):
            yield f"spec.topologySpreadConstraints[{index}]"


def amounts_of(pod: Json) -> list[dict[str, Any]]:
    """Return the requests and limits of a Pod's containers, and of the Pod itself, as numbers."""
    spec = pod["spec"]
    specs = [*spec["containers"], *spec.get("initContainers", []), spec]
    return [
        {side: parse_amounts((container.get("resources") or {}).get(side)) for side in ("requests", "limits")}
        for container in specs
    ]


def remove_empty(value: Any) -> Any:
    """Return JSON as the API server stores it: without empty lists and empty `matchLabels`."""
    if isinstance(value, list):
        return [remove_empty(element) for element in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: remove_empty(element) for key, element in value.items()}
    return {key: element for key, element in cleaned.items() if element != [] and (key, element) != ("matchLabels", {})}
