"""Whole Pods: every scheduling field, and fields that must stay unchanged."""

from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from tests.core.generating import nodes, pod_affinity
from tests.core.generating.classes import priorities, runtimes, schedulers
from tests.core.generating.tolerations import FILLED_IN, tolerations
from tests.core.generating.vocabulary import (
    CONCERNS,
    HASH,
    NAMESPACE,
    NAMESPACE_LABELS,
    ODD,
    OUR_ANNOTATION,
    OUR_LABEL,
    OUR_QUEUE,
    QUEUE,
    REAL,
    SERVICE,
    THEIR_QUEUE,
    TOLERATIONS,
    UNKNOWN_FIELD,
    Concern,
    Json,
    PodStyle,
    draw_object,
)
from tests.core.resource_strategies import pod_resources

_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
_OTHER_LABELS = {"app": "x", "tier": "y", "tenant": "t", "pod-template-hash": "7d4b9c"}


def _string_map(style: PodStyle, *own: tuple[str, str], **more: str) -> st.SearchStrategy[Json]:
    """Build labels or annotations; Podgate's own ones are sometimes present, correct or forged."""
    forged = ["forged"] if style.strict else ["forged", ""]
    podgates = {key: st.sampled_from([value, *forged]) for key, value in own}
    podgates[QUEUE] = st.sampled_from([OUR_QUEUE, THEIR_QUEUE, *NAMESPACE_LABELS.values()])
    others = {key: st.just(value) for key, value in more.items()}
    return st.fixed_dictionaries({}, optional={**podgates, **others})


@cache
def _metadata(style: PodStyle) -> st.SearchStrategy[Json]:
    labels = _string_map(style, (OUR_LABEL, SERVICE), **_OTHER_LABELS)
    if style.strict:
        named = {"generateName": st.just("p-"), "namespace": st.just(NAMESPACE)}
        return st.fixed_dictionaries({**named, "labels": labels, "annotations": _string_map(style)})
    annotations = _string_map(style, (OUR_ANNOTATION, HASH), **{"odd.io/~1": "é\u2028"})
    other_labels = st.dictionaries(style.keys, style.values, max_size=2)
    optional = {
        "name": st.just("p"),
        "generateName": st.just("p-"),
        "namespace": st.just(NAMESPACE),
        "labels": st.none() | labels | st.builds(lambda some, more: {**some, **more}, other_labels, labels),
        "annotations": st.none() | annotations,
        "ownerReferences": st.none() | st.just([_OWNER]),
        UNKNOWN_FIELD: st.just({"a~b/c": None}),
    }
    return st.fixed_dictionaries({}, optional=optional)


_SMALL: list[Json] = [{"requests": {"cpu": "1m"}}, {"limits": {"cpu": "1m", "memory": "1Mi"}}]
"""Resources of a Burstable Pod and of a Guaranteed one."""


@cache
def _containers(style: PodStyle) -> st.SearchStrategy[list[Json]]:
    plain: Json = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    of_each_class: list[Json] = [plain, *({**plain, "resources": some} for some in _SMALL)]
    if style.strict:
        return st.sampled_from([[container] for container in of_each_class])
    odd = {**plain, "env": [{"name": "E", "value": "é\u2028"}], "args": ["a~1b", None], UNKNOWN_FIELD: {"~/": [None]}}
    return st.sampled_from([[container] for container in (*of_each_class, odd)])


@cache
def _affinity(style: PodStyle, concern: Concern | None) -> st.SearchStrategy[Json]:
    kinds = {
        "nodeAffinity": nodes.affinities(style, is_required=concern is not None),
        "podAffinity": pod_affinity.affinities(style),
        "podAntiAffinity": pod_affinity.affinities(style),
    }
    if concern is None:
        return draw_object(style, {}, kinds)
    return draw_object(style, {kind: kinds[kind] for kind in concern.kinds}, {})


@cache
def _spec(style: PodStyle, concern: Concern | None) -> st.SearchStrategy[Json]:
    some = st.lists(tolerations(style), max_size=3)
    repeated = some.map(lambda found: [*found, *found[:1]])
    filled_in = some.map(lambda found: [*found, *FILLED_IN])
    gates = [{"name": "example.com/gate"}]
    fields = {
        "schedulerName": schedulers if style.strict else st.sampled_from([""]) | schedulers,
        "nodeSelector": st.dictionaries(style.keys, style.values, max_size=3),
        "affinity": _affinity(style, concern),
        "tolerations": some | repeated | filled_in,
        "topologySpreadConstraints": pod_affinity.spreads(style),
        "schedulingGates": st.just([] if style.strict else gates),
        "terminationGracePeriodSeconds": st.just(0),
    }
    always = {"containers": _containers(style)}
    if concern is None:
        return draw_object(style, always, fields)
    return draw_object(style, always, {field: fields[field] for field in concern.fields if field in fields})


def _draw_pod_with_resources(*, strict: bool) -> st.SearchStrategy[Json]:
    """Draw them without overhead, which belongs to a runtime class."""
    return pod_resources(strict=strict).map(lambda spec: {name: spec[name] for name in spec if name != "overhead"})


def _merge(pod: Json, more: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], **more}}


@st.composite
def _pods(draw: st.DrawFn, style: PodStyle, concern: Concern | None = None) -> Json:
    metadata, spec = dict(draw(_metadata(style))), dict(draw(_spec(style, concern)))
    if concern is None or "priorityClassName" in concern.fields:
        priority, entries = draw(priorities(style))
        spec |= priority | draw(runtimes(style))
        if entries is not None:
            metadata["managedFields"] = entries
    whole: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if not style.strict and draw(st.booleans()):
        whole["status"] = {"phase": "Pending", UNKNOWN_FIELD: [None]}
    return whole


@cache
def pods_of(style: PodStyle, concern: Concern) -> st.SearchStrategy[Json]:
    return _pods(style, concern)


_whole = st.deferred(lambda: _pods(ODD))
pods = st.deferred(lambda: _whole | st.sampled_from(CONCERNS).flatmap(partial(pods_of, ODD)))
"""Pods with fields of all concerns, or of one."""
whole_pods = st.builds(_merge, _whole, _draw_pod_with_resources(strict=False))
"""Pods with resources in their containers, too."""
pods_of_classes = st.deferred(
    lambda: st.builds(_merge, pods_of(ODD, TOLERATIONS), _draw_pod_with_resources(strict=True))
)
"""Pods of every QoS class, which the API server accepts, with tolerations."""
pods_with_resources = _draw_pod_with_resources(strict=False).map(
    lambda spec: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
)
real_pods = st.deferred(lambda: _pods(REAL))
