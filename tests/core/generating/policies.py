"""Placements as users write them: drawn, rendered as a document, and filtered by the document's rules.

They are not filtered by the proof: a Pod or policy that it refuses by mistake must be tested.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from tests.core.generating import nodes, pod_affinity
from tests.core.generating.tolerations import tolerations
from tests.core.generating.vocabulary import (
    HOME,
    KINDS,
    NAMESPACE_LABELS,
    NODE_KEYS,
    NODE_VALUES,
    ODD,
    OUR_PRIORITY,
    OUR_QUEUE,
    OUR_RUNTIME,
    OUR_SCHEDULER,
    PREFERRED,
    QUEUE,
    REAL,
    REQUIRED,
    SERVICE,
    THEIR_PRIORITY,
    THEIR_RUNTIME,
    THEIR_SCHEDULER,
    TOLERATIONS,
    Concern,
    Json,
    PodStyle,
    draw_object,
)
from tests.core.resource_strategies import resource_rules
from webhook.core.document.loading import load_unproved
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.policy.model import Service


class Governed(NamedTuple):
    """A placement as JSON, and the service that it is decoded to; `written`: `defaults` and the service above it."""

    placement: Json
    service: Service
    resources: Json | None = None
    written: tuple[Json, Json] | None = None


def document(placement: Json, **more: Any) -> bytes:
    """Return a complete policy document; JSON is YAML."""
    service = {"name": SERVICE, "match": {"anyNamespace": True}, "placement": placement, **more}
    return msgspec.json.encode({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": [service]})


@lru_cache(maxsize=4096)
def read_document(raw: bytes) -> Service | None:
    try:
        return load_unproved(raw, None).policy.services[0]
    except DocumentError:
        return None


def decode_placement(placement: Json, **more: Any) -> Governed:
    """Decode a valid placement."""
    service = read_document(document(placement, **more))
    assert service is not None, placement
    return Governed(placement, service.resolve_namespace(NAMESPACE_LABELS), more.get("resources"))


_entries = st.builds(
    lambda label, values, place, weight: {
        **label,
        "in": [*values[:place], HOME, *values[place:]],
        **({} if weight is None else {"preferredWeight": weight}),
    },
    st.sampled_from([{"level": "Region"}, {"level": "Zone"}, *({"key": key} for key in NODE_KEYS)]),
    st.lists(st.sampled_from([value for value in NODE_VALUES if value != HOME]), max_size=2, unique=True),
    st.integers(0, 2),
    st.none() | st.sampled_from([1, 50]),
)


def _remove_nulls(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Remove null fields, which a document may not contain."""
    return strategy.map(_remove_null)


def _remove_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _remove_null(item) for key, item in value.items() if item is not None}
    return [_remove_null(item) for item in value] if isinstance(value, list) else value


@cache
def _affinities(concern: Concern | None) -> st.SearchStrategy[Json]:
    any_terms = _remove_nulls(nodes.terms(REAL))
    terms = st.builds(
        lambda some, good, place: [*some[:place], good, *some[place:]],
        st.lists(nodes.satisfiable_terms() | any_terms, max_size=1)
        | st.lists(nodes.satisfiable_terms() | any_terms, min_size=1, max_size=2),
        nodes.satisfiable_terms(),
        st.integers(0, 2),
    )
    required = st.fixed_dictionaries({"nodeSelectorTerms": terms})
    surely = {REQUIRED: required} if concern is not None else {}
    of_nodes = draw_object(
        REAL, surely, {REQUIRED: required, PREFERRED: _remove_nulls(nodes.draw_preferred(REAL, most=2))}
    )
    of_pods = _remove_nulls(pod_affinity.affinities(REAL))
    kinds = dict(zip(KINDS, (of_nodes, of_pods, of_pods), strict=True))
    if concern is None:
        return draw_object(REAL, {}, kinds)
    return draw_object(REAL, {kind: kinds[kind] for kind in concern.kinds}, {})


_rules = st.sampled_from(["Deny", "Keep", "Override"])
_CONFLICTS = (
    *("labels", "annotations", "schedulerName", "nodeSelector", "topologySpreadConstraints"),
    *("priorityClassName", "runtimeClassName"),
)
_VALUES = st.sampled_from(
    [
        OUR_QUEUE,
        *(
            {label: name, **more}
            for label in ("fromPod", "fromNamespace")
            for name in ("app", "team", "absent")
            for more in ({}, {"default": "d"})
        ),
    ]
)


def _values(literal: str) -> st.SearchStrategy[Json]:
    """Draw labels or annotations: one that Pods often have, and one that they do not have."""
    values = _VALUES | st.just(literal)
    return st.fixed_dictionaries({QUEUE: values}, optional={"example.com/queue": values})


def _draw_allowed(style: PodStyle) -> st.SearchStrategy[Json]:
    names = {
        "schedulerNames": [OUR_SCHEDULER, THEIR_SCHEDULER],
        "priorityClassNames": [OUR_PRIORITY, THEIR_PRIORITY],
        "runtimeClassNames": [OUR_RUNTIME, THEIR_RUNTIME],
        "nodeSelectorKeys": NODE_KEYS,
    }
    lists = {field: st.sampled_from([[], some[:1], some, *_patterns(field, some)]) for field, some in names.items()}
    return draw_object(REAL, {}, {**lists, "tolerations": _tolerations(style)})


def _patterns(field: str, names: Sequence[str]) -> list[list[str]]:
    """Return lists with a pattern for one of two names."""
    return [] if field == "nodeSelectorKeys" else [[f"{names[0][:2]}*"], [f"*{names[1][-4:]}"]]


def _tolerations(style: PodStyle, *, least: int = 0) -> st.SearchStrategy[list[Json]]:
    def normalize(found: Json) -> Json:
        known = {key: value for key, value in found.items() if key in _TOLERATION}
        return {**known, "operator": known.get("operator") or "Equal"}

    drawn = tolerations(style).map(normalize)
    return st.lists(
        drawn, min_size=least, max_size=3, unique_by=lambda document: msgspec.json.encode(document, order="sorted")
    )


_QOS_CLASSES = ("Guaranteed", "Burstable", "BestEffort")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")


@st.composite
def _draw_if_absent(draw: st.DrawFn, placement: Json) -> Json:
    """Draw `ifAbsent` for what a placement sets; it replaces the rule for conflicts."""
    affinity = placement.get("affinity") or {}
    fields = [("topologySpreadConstraints", placement), ("podAntiAffinity", affinity)]
    some = [name for name, holder in fields if holder.get(name) and draw(st.sampled_from([False, False, True]))]
    if not some:
        return placement
    rules = {name: rule for name, rule in (placement.get("onConflict") or {}).items() if name not in some}
    return {**placement, "ifAbsent": some, "onConflict": rules}


@cache
def placements_of(style: PodStyle, concern: Concern | None = None) -> st.SearchStrategy[Json]:
    rules = st.fixed_dictionaries({}, optional=dict.fromkeys(["default", *_CONFLICTS], _rules))
    fields = {
        "labels": _values(""),
        "annotations": _values("free text é"),
        "schedulerName": st.just(OUR_SCHEDULER),
        "nodeSelector": st.dictionaries(st.sampled_from(NODE_KEYS), st.just(HOME), max_size=3),
        "topology": st.lists(_entries, max_size=3),
        "affinity": _affinities(concern),
        "topologySpreadConstraints": pod_affinity.spreads(REAL),
        "tolerations": _tolerations(style),
        "tolerationsByQosClass": draw_object(REAL, {}, dict.fromkeys(_QOS_CLASSES, _tolerations(style, least=1))),
        "priorityClassName": st.just(OUR_PRIORITY),
        "runtimeClassName": st.just(OUR_RUNTIME),
        "allow": _draw_allowed(style),
    }
    chosen_fields = fields if concern is None else {field: fields[field] for field in concern.fields}
    surely = {} if concern is None or "allow" not in concern.fields else {"allow": fields["allow"]}
    return draw_object(REAL, surely, {**chosen_fields, "onConflict": rules}).flatmap(_draw_if_absent)


def _is_accepted(placement: Json, **more: Any) -> bool:
    return read_document(document(placement, **more)) is not None


drawn_placements = placements_of(ODD)
"""Not filtered by the document's rules."""
policies = st.deferred(lambda: drawn_placements.filter(_is_accepted).map(decode_placement))


def policies_of(style: PodStyle, concern: Concern) -> st.SearchStrategy[Governed]:
    return placements_of(style, concern).filter(_is_accepted).map(decode_placement)


real_policies = st.deferred(lambda: placements_of(REAL).filter(_is_accepted).map(decode_placement))
services = policies.map(lambda found: found.service)
_stanzas = st.tuples(drawn_placements, resource_rules(strict=True)).filter(
    lambda both: _is_accepted(both[0], resources=both[1])
)
whole_policies = st.deferred(lambda: _stanzas.map(lambda both: decode_placement(both[0], resources=both[1])))
"""Policies with both stanzas that rewrite a Pod."""
_by_class = st.tuples(placements_of(ODD, TOLERATIONS), resource_rules()).filter(
    lambda both: _is_accepted(both[0], resources=both[1])
)
class_policies = st.deferred(lambda: _by_class.map(lambda both: decode_placement(both[0], resources=both[1])))
"""Policies of tolerations and of resources, by which Pods change their QoS class."""
range_policies = st.deferred(lambda: resource_rules(strict=True).filter(_are_ranges).map(_decode_ranges))
"""Policies with `resources` alone."""


def _are_ranges(resources: Json) -> bool:
    return _is_accepted({}, resources=resources)


def _decode_ranges(resources: Json) -> Governed:
    return decode_placement({}, resources=resources)
