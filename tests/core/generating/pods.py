"""Whole Pods: every scheduling field, and fields that must stay unchanged."""

from functools import cache, partial
from typing import Any

from hypothesis import strategies as st

from tests.core.generating import nodes, pod_affinity
from tests.core.generating.classes import priorities, runtimes, schedulers
from tests.core.generating.tolerations import tolerations
from tests.core.generating.vocabulary import (
    CONCERNS,
    HASH,
    NAMESPACE,
    ODD,
    OUR_ANNOTATION,
    OUR_LABEL,
    REAL,
    SERVICE,
    TOMORROW,
    Concern,
    Json,
    Taste,
    built,
)
from tests.core.resource_strategies import pod_resources

_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
_OTHER_LABELS = {"app": "x", "tier": "y", "tenant": "t", "pod-template-hash": "7d4b9c"}


def _string_map(taste: Taste, *own: tuple[str, str], **more: str) -> st.SearchStrategy[Json]:
    """Build labels or annotations: our own ones are at times there already, rightly or forged."""
    forged = ["forged"] if taste.strict else ["forged", ""]
    mine = {key: st.sampled_from([value, *forged]) for key, value in own}
    theirs = {key: st.just(value) for key, value in more.items()}
    return st.fixed_dictionaries({}, optional={**mine, **theirs})


@cache
def _metadata(taste: Taste) -> st.SearchStrategy[Json]:
    labels = _string_map(taste, (OUR_LABEL, SERVICE), **_OTHER_LABELS)
    if taste.strict:
        return st.builds(lambda some: {"generateName": "p-", "namespace": NAMESPACE, "labels": some}, labels)
    annotations = _string_map(taste, (OUR_ANNOTATION, HASH), **{"odd.io/~1": "é\u2028"})
    strange = st.dictionaries(taste.keys, taste.values, max_size=2)
    optional = {
        "name": st.just("p"),
        "generateName": st.just("p-"),
        "namespace": st.just(NAMESPACE),
        "labels": st.none() | labels | st.builds(lambda some, more: {**some, **more}, strange, labels),
        "annotations": st.none() | annotations,
        "ownerReferences": st.none() | st.just([_OWNER]),
        TOMORROW: st.just({"a~b/c": None}),
    }
    return st.fixed_dictionaries({}, optional=optional)


@cache
def _containers(taste: Taste) -> st.SearchStrategy[list[Json]]:
    plain: Json = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    if taste.strict:
        return st.just([plain])
    odd = {**plain, "env": [{"name": "E", "value": "é\u2028"}], "args": ["a~1b", None], TOMORROW: {"~/": [None]}}
    return st.sampled_from([[plain], [odd]])


@cache
def _affinity(taste: Taste, concern: Concern | None) -> st.SearchStrategy[Json]:
    kinds = {
        "nodeAffinity": nodes.affinities(taste, surely=concern is not None),
        "podAffinity": pod_affinity.affinities(taste),
        "podAntiAffinity": pod_affinity.affinities(taste),
    }
    if concern is None:
        return built(taste, {}, kinds)
    return built(taste, {kind: kinds[kind] for kind in concern.kinds}, {})


@cache
def _spec(taste: Taste, concern: Concern | None) -> st.SearchStrategy[Json]:
    some = st.lists(tolerations(taste), max_size=3)
    repeated = some.map(lambda found: [*found, *found[:1]])
    gates = [{"name": "example.com/gate"}]
    fields = {
        "schedulerName": schedulers if taste.strict else st.sampled_from([""]) | schedulers,
        "nodeSelector": st.dictionaries(taste.keys, taste.values, max_size=3),
        "affinity": _affinity(taste, concern),
        "tolerations": some | repeated,
        "topologySpreadConstraints": pod_affinity.spreads(taste),
        "schedulingGates": st.just([] if taste.strict else gates),
        "terminationGracePeriodSeconds": st.just(0),
    }
    always = {"containers": _containers(taste)}
    if concern is None:
        return built(taste, always, fields)
    return built(taste, always, {field: fields[field] for field in concern.fields if field in fields})


_with_resources = pod_resources().map(
    lambda spec: {field: value for field, value in spec.items() if field != "overhead"}
)
"""Overhead goes with a runtime class."""


@st.composite
def _pods(draw: st.DrawFn, taste: Taste, concern: Concern | None = None) -> Json:
    metadata, spec = dict(draw(_metadata(taste))), dict(draw(_spec(taste, concern)))
    if concern is None or "priorityClassName" in concern.fields:
        priority, entries = draw(priorities(taste))
        spec |= priority | draw(runtimes(taste))
        if entries is not None:
            metadata["managedFields"] = entries
    whole: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if not taste.strict and draw(st.booleans()):
        whole["status"] = {"phase": "Pending", TOMORROW: [None]}
    return whole


@cache
def pods_of(taste: Taste, concern: Concern) -> st.SearchStrategy[Json]:
    return _pods(taste, concern)


_whole = st.deferred(lambda: _pods(ODD))
pods = st.deferred(lambda: _whole | st.sampled_from(CONCERNS).flatmap(partial(pods_of, ODD)))
"""Of everything, or of one concern."""
whole_pods = st.builds(lambda pod, more: {**pod, "spec": {**pod["spec"], **more}}, _whole, _with_resources)
"""Their containers ask for resources as well."""
real_pods = st.deferred(lambda: _pods(REAL))
