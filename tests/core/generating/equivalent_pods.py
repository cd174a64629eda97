"""Pods that already satisfy a policy with other terms: they test equality and implication."""

from itertools import chain
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.core.api_server import apply_defaults, list_errors
from tests.core.generating.documents import divided_policies
from tests.core.generating.pod_affinity import get_spread_kind, own_pods
from tests.core.generating.pods import pods, pods_of, pods_of_classes, pods_with_resources, real_pods, whole_pods
from tests.core.generating.policies import (
    Governed,
    class_policies,
    policies,
    policies_of,
    range_policies,
    real_policies,
    whole_policies,
)
from tests.core.generating.vocabulary import (
    CONCERNS,
    NAMESPACE,
    ODD,
    PREFERRED,
    REAL,
    REGION,
    REQUIRED,
    TENANTS_CONCERNS,
    ZONE,
    Concern,
    Json,
    PodStyle,
)
from webhook.core.policy.model import Service

_LEVELS = {"Region": "topology.kubernetes.io/region", "Zone": ZONE}


class Pair(NamedTuple):
    """A Pod as JSON, and the policy that owns it."""

    pod: Json
    policy: Governed

    @property
    def service(self) -> Service:
        return self.policy.service

    @property
    def placement(self) -> Json:
        return self.policy.placement


@st.composite
def _shuffle(draw: st.DrawFn, values: list[Any]) -> list[Any]:
    """Draw the same values in another order, sometimes with one of them twice."""
    found = list(draw(st.permutations(values))) if len(values) > 1 else list(values)
    return [*found, found[0]] if found and draw(st.sampled_from([False, False, False, True])) else found


def _expressions(draw: st.DrawFn, found: list[Json]) -> list[Json]:
    lists = {"In", "NotIn"}
    reworded = [
        {**expression, "values": draw(_shuffle(expression["values"]))}
        if expression["operator"] in lists
        else expression
        for expression in found
    ]
    return draw(_shuffle(reworded))


def _node_term(draw: st.DrawFn, term: Json) -> Json:
    found = dict(term)
    for field in ("matchExpressions", "matchFields"):
        if field in found:
            found[field] = draw(_shuffle(found[field]))
    if "matchExpressions" in found:
        found["matchExpressions"] = _expressions(draw, found["matchExpressions"])
    return found


def _selector(draw: st.DrawFn, selector: Json) -> Json:
    """Draw an equal selector, sometimes with matchLabels written as expressions."""
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if draw(st.booleans()):
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()] + expressions
        return {"matchExpressions": _expressions(draw, expressions)}
    return {"matchLabels": labels, "matchExpressions": _expressions(draw, expressions)}


def _pod_term(draw: st.DrawFn, term: Json) -> Json:
    found = dict(term)
    for field in ("labelSelector", "namespaceSelector"):
        if field in found:
            found[field] = _selector(draw, found[field])
    if not found.get("namespaces") and "namespaceSelector" not in found:
        found["namespaces"] = draw(st.sampled_from([[], [NAMESPACE]]))
    elif found.get("namespaces"):
        found["namespaces"] = draw(_shuffle(found["namespaces"]))
    return found


def _spread(draw: st.DrawFn, constraint: Json) -> Json:
    found = {"labelSelector": draw(own_pods), **constraint}
    found["labelSelector"] = _selector(draw, found["labelSelector"])
    if draw(st.booleans()):
        domains = {"minDomains": 1} if found["whenUnsatisfiable"] == "DoNotSchedule" else {}
        found = {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore", **domains, **found}
    if draw(st.sampled_from([False, False, True])):
        return {**draw(_change_scalar(found)), "topologyKey": found["topologyKey"]}
    return found


def list_topology_terms(placement: Json) -> list[Json]:
    """Return the entries of `topology` as preferences, whatever their weight."""
    return [
        {
            "weight": entry.get("preferredWeight", 1),
            "preference": {"matchExpressions": [{"key": _label(entry), "operator": "In", "values": entry["in"]}]},
        }
        for entry in placement.get("topology") or []
    ]


def _label(entry: Json) -> str:
    label: str = _LEVELS[entry["level"]] if "level" in entry else entry["key"]
    return label


@st.composite
def _change_scalar(draw: st.DrawFn, item: Json) -> Json:
    """Draw the item with one scalar changed: it is no longer equal."""
    spots = _list_scalars(item, [])
    if not spots:
        return item
    path, word = draw(st.sampled_from(spots))
    changed: Json = _replace_value(item, path, draw(_other_values(path, word)))
    return changed


def _list_scalars(value: Any, path: list[Any]) -> list[tuple[list[Any], Any]]:
    """Return every string and number with its path."""
    if isinstance(value, str | int):
        return [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [spot for key, item in items for spot in _list_scalars(item, [*path, key])]


_OPPOSITES = [("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt"), ("Honor", "Ignore")]
_SWAPPED = {word: other for one, two in _OPPOSITES for word, other in ((one, two), (two, one))}
_KEPT = {"key", "whenUnsatisfiable"}
_FREE: dict[Any, list[Any]] = {
    "weight": [1, 50, 100],
    "maxSkew": [1, 2, 3],
    "minDomains": [1, 2],
    "topologyKey": [ZONE, REGION],
}


def _other_values(path: list[Any], word: Any) -> st.SearchStrategy[Any]:
    """Draw another value that is valid at the same path."""
    field, holder = path[-1], path[-2] if len(path) > 1 else None
    if field in _KEPT:
        return st.just(word)
    if field in _FREE:
        return st.sampled_from(_FREE[field])
    if holder in {"matchLabelKeys", "mismatchLabelKeys"}:
        return st.just(f"{holder}.other")
    return st.just(_SWAPPED[word]) if word in _SWAPPED else st.sampled_from(["1", "2", "3", "x"])


def _replace_value(value: Any, path: list[Any], word: Any) -> Any:
    if not path:
        return word
    step, *rest = path
    if isinstance(value, dict):
        return {key: _replace_value(item, rest, word) if key == step else item for key, item in value.items()}
    return [_replace_value(item, rest, word) if index == step else item for index, item in enumerate(value)]


def _insert(draw: st.DrawFn, holder: Json, path: tuple[str, ...], item: Json) -> None:
    """Insert an item at a random index of a list of the Pod; its parents may be absent or null."""
    *parents, field = path
    for parent in parents:
        if holder.get(parent) is None:
            holder[parent] = {}
        holder[parent] = holder = dict(holder[parent])
    found = list(holder.get(field) or [])
    found.insert(draw(st.integers(0, len(found))), item)
    holder[field] = found


def _affinity_items(draw: st.DrawFn, placement: Json) -> list[tuple[tuple[str, ...], Json]]:
    affinity = placement.get("affinity") or {}
    found: list[tuple[tuple[str, ...], Json]] = []
    of_nodes = affinity.get("nodeAffinity") or {}
    path = ("affinity", "nodeAffinity")
    native = (of_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    topology = [term["preference"]["matchExpressions"][0] for term in list_topology_terms(placement)]
    for term in native:
        own = [*(term.get("matchExpressions") or []), *(topology if draw(st.booleans()) else [])]
        if own:
            found.append(((*path, REQUIRED, "nodeSelectorTerms"), _node_term(draw, {**term, "matchExpressions": own})))
    found += [
        ((*path, PREFERRED), {**term, "preference": _node_term(draw, term["preference"])})
        for term in [*(of_nodes.get(PREFERRED) or []), *list_topology_terms(placement)]
    ]
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        found += [(("affinity", kind, REQUIRED), _pod_term(draw, term)) for term in terms.get(REQUIRED) or []]
        found += [
            (("affinity", kind, PREFERRED), {**term, "podAffinityTerm": _pod_term(draw, term["podAffinityTerm"])})
            for term in terms.get(PREFERRED) or []
        ]
    return found


@st.composite
def _draw_overlapping(
    draw: st.DrawFn, pod_strategy: st.SearchStrategy[Json], policy_strategy: st.SearchStrategy[Governed]
) -> Pair:
    policy, pod = draw(policy_strategy), draw(pod_strategy)
    placement = policy.placement
    spec = pod["spec"] = dict(pod["spec"])
    items = _affinity_items(draw, placement)
    for path, item in items:
        equality = draw(st.sampled_from(["absent", "equal", "equal", "nearly"]))
        if equality != "absent":
            _insert(draw, spec, path, item if equality == "equal" else draw(_change_scalar(item)))
    by_class = (placement.get("tolerationsByQosClass") or {}).values()
    for toleration in chain(placement.get("tolerations") or [], *by_class):
        if draw(st.booleans()):
            _insert(draw, spec, ("tolerations",), toleration)
    for constraint in placement.get("topologySpreadConstraints") or []:
        if draw(st.booleans()):
            others = spec.get("topologySpreadConstraints") or []
            spec["topologySpreadConstraints"] = [
                other for other in others if get_spread_kind(other) != get_spread_kind(constraint)
            ]
            _insert(draw, spec, ("topologySpreadConstraints",), _spread(draw, constraint))
    return Pair(pod, policy)


def _draw_pair(style: PodStyle, concerns: tuple[Concern, ...] = CONCERNS) -> st.SearchStrategy[Pair]:
    """Draw a Pod and a policy with fields of the same concern."""
    return st.sampled_from(concerns).flatmap(
        lambda concern: _draw_overlapping(pods_of(style, concern), policies_of(style, concern))
    )


# Deferred for their names only: otherwise a failure is printed after pages of nested strategies.
pairs = st.deferred(
    lambda: st.builds(Pair, pods, policies) | _draw_overlapping(pods, policies) | _draw_pair(ODD) | _draw_pair(ODD)
)
whole_pairs = st.deferred(
    lambda: (st.builds(Pair, whole_pods, whole_policies) | _draw_overlapping(whole_pods, whole_policies)).filter(
        lambda pair: not pair.placement.get("tolerationsByQosClass") or not list_errors(apply_defaults(dict(pair.pod)))
    )
)
"""Pods with resources in their containers, and policies with ranges. A Pod that is rejected has no QoS class."""
class_pairs = st.deferred(lambda: _draw_overlapping(pods_of_classes, class_policies))
"""Pairs of tolerations that depend on the QoS class, and of resources that decide it."""
tenants_pairs = st.deferred(lambda: _draw_pair(ODD, TENANTS_CONCERNS))
"""Pairs of labels, and of what a Pod may bring or keep: beside all other fields their cases are rare."""
range_pairs = st.deferred(lambda: st.builds(Pair, pods_with_resources, range_policies))
"""Pairs of resources alone."""
document_pairs = st.deferred(
    lambda: _draw_overlapping(whole_pods | pods_of_classes, divided_policies).filter(
        lambda pair: not pair.placement.get("tolerationsByQosClass") or not list_errors(apply_defaults(dict(pair.pod)))
    )
)
"""Pods, and policies whose values are partly from `defaults`."""
real_pairs = st.deferred(
    lambda: st.builds(Pair, real_pods, real_policies) | _draw_overlapping(real_pods, real_policies) | _draw_pair(REAL)
)
