"""Hypothesis strategies: Pods as JSON, with every legal oddity that touches a decision, and policies to judge them by.

Alphabets are small on purpose: keys and values must meet, or nothing ever conflicts, implies or covers.
"""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from webhook.core.policy import Match, Service
from webhook.core.stanzas import Placement

Json = dict[str, Any]

PROPERTY = settings(deadline=None, max_examples=300)
"""No deadline: nothing here is timed."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OUR_LABEL = "podgate.io/service"
OUR_ANNOTATION = "podgate.io/policy-hash"
HASH = "0123456789abcdef"

keys = st.sampled_from([ZONE, REGION, "disk", "odd.io/a~1b~0c", "odd.io/~", "a/b"])
values = st.sampled_from(["1", "2", "3", "", "é\u2028"])
names = st.sampled_from(["n1", "n2"])


def fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Build an object whose every field may be absent, null, or there."""
    return st.fixed_dictionaries({}, optional={name: st.none() | value for name, value in optional.items()})


def _requirement(key: str, operator: str, chosen: list[str], *, null: bool) -> Json:
    if operator in {"In", "NotIn"}:
        return {"key": key, "operator": operator, "values": chosen}
    if operator in {"Gt", "Lt"}:
        return {"key": key, "operator": operator, "values": ["2"]}
    return {"key": key, "operator": operator, **({"values": None} if null else {})}


expressions = st.builds(
    _requirement,
    keys,
    st.sampled_from(["In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(values, min_size=1, max_size=3),
    null=st.booleans(),
)
name_fields = names.map(lambda name: {"key": "metadata.name", "operator": "In", "values": [name]})
terms = fields(matchExpressions=st.lists(expressions, max_size=3), matchFields=st.lists(name_fields, max_size=1))
required = st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, min_size=1, max_size=4)})
preferred = st.lists(st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": terms}), max_size=2)
node_affinity = fields(
    requiredDuringSchedulingIgnoredDuringExecution=required, preferredDuringSchedulingIgnoredDuringExecution=preferred
)
opaque = st.just({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "future": [1, None]}]})
affinities = fields(nodeAffinity=node_affinity, podAffinity=opaque, podAntiAffinity=opaque)

taint_keys = st.sampled_from(["gpu", "node.kubernetes.io/not-ready"])
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])


@st.composite
def tolerations(draw: st.DrawFn) -> Json:
    """Every operator and effect that Kubernetes takes; seconds only where they are legal."""
    operator = draw(st.sampled_from([None, "", "Equal", "Exists", "Lt", "Gt"]))
    found: Json = {} if operator is None else {"operator": operator}
    if operator != "Exists" or draw(st.booleans()):
        found["key"] = draw(taint_keys)
    if operator in {"Lt", "Gt"}:
        found["value"] = "5"
    elif operator != "Exists" and draw(st.booleans()):
        found["value"] = draw(st.sampled_from(["a", "b", ""]))
    effect = draw(st.none() | effects)
    if effect is not None:
        found["effect"] = effect
    if effect == "NoExecute" and draw(st.booleans()):
        found["tolerationSeconds"] = draw(st.sampled_from([-1, 0, 300, 3600]))
    return found


def _string_map(*own: tuple[str, str]) -> st.SearchStrategy[Json]:
    mine = st.fixed_dictionaries({}, optional={key: st.sampled_from([value, "forged", ""]) for key, value in own})
    return st.builds(lambda some, more: {**some, **more}, st.dictionaries(keys, values, max_size=3), mine)


metadata = fields(
    name=st.just("p"),
    generateName=st.just("p-"),
    labels=_string_map((OUR_LABEL, "s"), ("app", "x")),
    annotations=_string_map((OUR_ANNOTATION, HASH)),
    ownerReferences=st.just([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}]),
    managedFields=st.just([{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:affinity": {}}}}]),
).map(
    lambda found: {key: value for key, value in found.items() if value is not None or key in {"labels", "annotations"}}
)

specs = st.builds(
    lambda some, more: {**some, **more},
    fields(
        schedulerName=st.sampled_from(["", "default-scheduler", "podgate-scheduler", "their-scheduler"]),
        nodeSelector=st.dictionaries(keys, values, max_size=3),
        affinity=affinities,
        tolerations=st.lists(tolerations(), max_size=3),
        schedulingGates=st.lists(st.just({"name": "example.com/gate"}), max_size=1),
        runtimeClassName=st.just("gvisor"),
    ),
    st.just({"containers": [{"name": "c", "image": "i"}], "fieldOfTomorrow": {"a~b/c": [1, 2.5, None]}}),
)
pods = st.fixed_dictionaries(
    {"metadata": metadata, "spec": specs}, optional={"status": st.just({"phase": "Pending"}), "kind": st.just("Pod")}
)


@st.composite
def topologies(draw: st.DrawFn) -> list[Json]:
    """Draw required and preferred entries; those of one label share a value, as the policy's rules demand."""
    common = draw(values)
    entry = st.fixed_dictionaries(
        {"in": st.lists(values, max_size=2).map(lambda some: [*some, common])},
        optional={"preferredWeight": st.just(50)},
    )
    where = st.sampled_from([{"level": "Region"}, {"level": "Zone"}, {"key": "disk"}, {"key": "odd.io/a~1b~0c"}])
    return draw(st.lists(st.builds(lambda some, more: {**some, **more}, entry, where), max_size=4))


rules = st.sampled_from(["Deny", "Keep", "Override"])
placements = st.fixed_dictionaries(
    {},
    optional={
        "schedulerName": st.just("podgate-scheduler"),
        "nodeSelector": st.dictionaries(keys, values, max_size=3),
        "topology": topologies(),
        "tolerations": st.lists(
            tolerations().map(lambda found: {**found, "operator": found.get("operator") or "Equal"}), max_size=3
        ),
        "onConflict": st.fixed_dictionaries(
            {}, optional={"default": rules, "schedulerName": rules, "nodeSelector": rules}
        ),
    },
)


def service_of(placement: Json, **more: Any) -> Service:
    return Service("s", Match(any_namespace=True), placement=msgspec.convert(placement, Placement), **more)


services = placements.map(service_of)
