"""Types of the API server's fields, from its OpenAPI documents, and a comparison of our structs with them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, inspect

from webhook.adapters.kubernetes import (
    access_reviews,
    claims,
    credentials,
    group_objects,
    nodes,
    pods,
    policy_revisions,
    self_subject_review,
    slot_owners,
)
from webhook.adapters.kubernetes.api import unread_objects
from webhook.adapters.kubernetes.api.objects import ApiStatus, Bookmark, Namespace, WatchEvent
from webhook.adapters.kubernetes.cluster_facts import probing as rights
from webhook.adapters.kubernetes.events import event_sender
from webhook.adapters.kubernetes.leases import lease_object, server_leases
from webhook.core.checks import objects as checked
from webhook.core.controller.held_controller import CreatingController
from webhook.core.diagnosis import objects as reported
from webhook.core.document.configmap import ConfigMap
from webhook.core.kubernetes.pod import Pod

GOLDEN = Path(__file__).with_name("api_types.json")
Schemas = Mapping[str, Mapping[str, str]]
"""By schema: the type of each field; `#NAME` is another schema, `[]` before a type an array, `{}` a map."""

_CONTROLLERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")
ROOTS: dict[type[Struct], tuple[str, ...]] = {
    reported.ReportedPod: ("Pod",),
    reported.ReportedEvent: ("Event",),
    reported.ReportedOwner: _CONTROLLERS,
    reported.ReportedMaker: ("Deployment", "CronJob"),
    reported.ReportedNamespace: ("Namespace",),
    reported.ReportedNode: ("Node",),
    CreatingController: _CONTROLLERS,
    Pod: ("Pod",),
    Namespace: ("Namespace",),
    ConfigMap: ("ConfigMap",),
    checked.ClusterObject: ("Namespace", "Node", "PriorityClass", "RuntimeClass", "StorageClass"),
    checked.ServiceObject: ("Service",),
    checked.EndpointSliceObject: ("EndpointSlice",),
    checked.ReplicasObject: ("Deployment", "ReplicaSet"),
    checked.PodObject: ("Pod",),
    checked.BudgetObject: ("PodDisruptionBudget",),
    checked.NetworkPolicyObject: ("NetworkPolicy",),
    checked.LeaseHolderObject: ("Lease",),
    checked.FailureEvent: ("Event",),
    nodes._Node: ("Node",),
    claims._Claim: ("PersistentVolumeClaim",),
    group_objects._Job: ("Job",),
    slot_owners._ReplicaSet: ("ReplicaSet",),
    slot_owners._Job: ("Job",),
    slot_owners._PodMetadata: ("Pod",),
    policy_revisions._Revision: ("ControllerRevision",),
    policy_revisions._Items: ("ControllerRevisionList",),
    lease_object._Read: ("Lease",),
    lease_object._Sighted: ("Lease",),
    pods._HostedPod: ("Pod",),
    unread_objects._Identified: ("Pod",),
    server_leases._Leases: ("LeaseList",),
    credentials._Secret: ("Secret",),
    credentials._TokenRequest: ("TokenRequest",),
    self_subject_review._Review: ("SelfSubjectReview",),
    rights._Review: ("SelfSubjectAccessReview",),
    access_reviews._TokenReview: ("TokenReview",),
    access_reviews._AccessReview: ("SubjectAccessReview",),
    event_sender._Named: ("ConfigMap",),
    ApiStatus: ("Status",),
    WatchEvent: ("WatchEvent",),
    Bookmark: ("Pod",),
}
"""Structs that decode an object of the API server, with the kinds that they decode."""
DOCUMENTS = (
    *("api/v1", "apis/apps/v1", "apis/batch/v1", "apis/policy/v1", "apis/node.k8s.io/v1", "apis/storage.k8s.io/v1"),
    *("apis/scheduling.k8s.io/v1", "apis/discovery.k8s.io/v1", "apis/networking.k8s.io/v1"),
    *("apis/coordination.k8s.io/v1", "apis/authentication.k8s.io/v1", "apis/authorization.k8s.io/v1"),
)
"""Group versions, as paths below `/openapi/v3`."""


def read_golden() -> Schemas:
    found: Schemas = json.loads(GOLDEN.read_text())
    return found


def compact(fetch: Callable[[str], Any]) -> dict[str, dict[str, str]]:
    """Return the schemas that our structs reach, of documents read by `fetch`."""
    documents: dict[str, Any] = {}
    for document in DOCUMENTS:
        documents |= fetch(f"/openapi/v3/{document}")["components"]["schemas"]
    kinds = {name.rpartition(".")[2]: name for name in reversed(documents) if ".v1." in name}
    found: dict[str, dict[str, str]] = {}
    everything = _Lazy(documents, kinds, found)
    for struct, roots in ROOTS.items():
        list(find_problems(struct, roots, everything))
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


class _Lazy(dict[str, Mapping[str, str]]):
    """Schemas of OpenAPI documents that notes which of them were asked for."""

    def __init__(
        self, documents: Mapping[str, Any], kinds: Mapping[str, str], found: dict[str, dict[str, str]]
    ) -> None:
        super().__init__()
        self._documents, self._kinds, self._found = documents, kinds, found

    def __missing__(self, name: str) -> Mapping[str, str]:
        properties = self._documents[self._kinds.get(name, name)]["properties"]
        self[name] = self._found[name] = {field: self._type(schema) for field, schema in properties.items()}
        return self[name]

    def _type(self, schema: Mapping[str, Any]) -> str:
        reference = schema.get("$ref") or next(
            (part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), None
        )
        if reference is not None:
            name = reference.rpartition("/")[2]
            target = self._documents[name]
            return f"#{name}" if "properties" in target else self._type(target)
        if "oneOf" in schema:
            return "|".join(sorted(option["type"] for option in schema["oneOf"]))
        if schema.get("type") == "array":
            return f"[]{self._type(schema['items'])}"
        if "additionalProperties" in schema:
            return f"{{}}{self._type(schema['additionalProperties'])}"
        return str(schema.get("type", "any"))


def find_problems(struct: type[Struct], roots: Iterable[str], schemas: Schemas) -> Iterator[str]:
    """Yield each declared field that none of the kinds has, or that has another type in one of them."""
    yield from _check_struct(inspect.type_info(struct), tuple(roots), schemas, struct.__name__)


def find_structs(structs: Iterable[type[Struct]]) -> set[type]:
    """Return all structs that some structs contain, and themselves."""
    found: set[type] = set()

    def visit(type_: Any) -> None:
        info = _plain(type_)
        if isinstance(info, inspect.StructType):
            if info.cls in found:
                return
            found.add(info.cls)
            for field in info.fields:
                visit(field.type)
        for member in _members(info):
            visit(member)

    for struct in structs:
        visit(inspect.type_info(struct))
    return found


def _plain(info: Any) -> Any:
    """Return a type without its annotations."""
    return _plain(info.type) if isinstance(info, inspect.Metadata) else info


def _members(info: Any) -> tuple[Any, ...]:
    if isinstance(info, inspect.Metadata):
        return _members(info.type)
    if isinstance(info, inspect.UnionType):
        return info.types
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        return (info.item_type,)
    return (info.value_type,) if isinstance(info, inspect.DictType) else ()


def _check_struct(info: Any, roots: tuple[str, ...], schemas: Schemas, place: str) -> Iterator[str]:
    for field in info.fields:
        name = field.encode_name
        types = {schemas[root][name] for root in roots if name in schemas[root]}
        if not types:
            yield f"{place}.{name}: no field of {', '.join(roots)}"
        yield from _check_type(field.type, tuple(sorted(types)), schemas, f"{place}.{name}")


def _check_type(info: Any, types: tuple[str, ...], schemas: Schemas, place: str) -> Iterator[str]:
    options = [_plain(member) for member in (_members(info) if isinstance(info, inspect.UnionType) else (info,))]
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    if structs and types and all(kind.startswith("#") for kind in types):
        yield from _check_struct(structs[0], tuple(kind[1:] for kind in types), schemas, place)
        return
    for declared in types:
        for accepted in declared.split("|") if declared[:2] not in _CONTAINERS else (declared,):
            yield from _check_options(options, accepted, schemas, place)


def _check_options(options: list[Any], declared: str, schemas: Schemas, place: str) -> Iterator[str]:
    for option in options:
        if isinstance(option, inspect.AnyType | inspect.RawType):
            return
        if declared[:2] in {"[]", "{}"} and isinstance(option, _CONTAINERS[declared[:2]]):
            item = _members(option)[0]
            yield from _check_type(item, (declared[2:],), schemas, f"{place}{declared[:2]}")
            return
        if declared.startswith("#") and isinstance(option, inspect.DictType):
            return  # read as any object
        if isinstance(option, _SCALARS.get(declared, ())):
            return
    yield f"{place}: the API server writes {declared}"


_CONTAINERS: dict[str, tuple[type, ...]] = {
    "[]": (inspect.VarTupleType, inspect.ListType),
    "{}": (inspect.DictType,),
}
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (inspect.StrType, inspect.EnumType, inspect.LiteralType),
    "integer": (inspect.IntType,),
    "number": (inspect.FloatType,),
    "boolean": (inspect.BoolType,),
    "object": (inspect.DictType,),
}


def render_schemas(schemas: Mapping[str, Mapping[str, str]]) -> str:
    """Return the golden file's text: one line a schema."""
    lines = (f"{json.dumps(name)}: {msgspec.json.encode(fields).decode()}" for name, fields in schemas.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
