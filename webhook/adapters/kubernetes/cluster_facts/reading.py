"""Concurrent reads of objects for the checks. Objects that cannot be read are noted with the reason."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, request_dated, send_request
from webhook.adapters.kubernetes.cluster_facts.decode import decode_fields, decode_items
from webhook.adapters.kubernetes.policy_parts import read_whole
from webhook.core.checks.objects import (
    BudgetObject,
    ClusterObject,
    EndpointSliceObject,
    FailureEvent,
    LeaseHolderObject,
    NetworkPolicyObject,
    PodObject,
    ReplicasObject,
    ServiceObject,
)
from webhook.core.document.configmap import INSTALLATION, NAME, NAMESPACE, OVERRIDES, ConfigMap
from webhook.core.json_depth import UNREADABLE_JSON

SECONDS = 10.0
_OBJECTS_MAX = "5000"
_IN = f"namespaces/{NAMESPACE}"
_SCHEDULER, _WAKE = "podgate-scheduler", "podgate-wake"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


class _Version(Struct, frozen=True, rename="camel"):
    git_version: str = ""


@dataclass(frozen=True, slots=True)
class _Read:
    """A list of objects: the path, their type, and a field selector."""

    path: str
    kind: Any
    fields: str = ""


_LISTS = {
    "mutating": _Read(f"{_WEBHOOKS}/mutatingwebhookconfigurations", dict[str, Any]),
    "validating": _Read(f"{_WEBHOOKS}/validatingwebhookconfigurations", dict[str, Any]),
    "namespaces": _Read("/api/v1/namespaces", ClusterObject),
    "nodes": _Read("/api/v1/nodes", ClusterObject),
    "priority_classes": _Read("/apis/scheduling.k8s.io/v1/priorityclasses", ClusterObject),
    "runtime_classes": _Read("/apis/node.k8s.io/v1/runtimeclasses", ClusterObject),
    "storage_classes": _Read("/apis/storage.k8s.io/v1/storageclasses", ClusterObject),
    "services": _Read(f"/api/v1/{_IN}/services", ServiceObject),
    "endpoint_slices": _Read(f"/apis/discovery.k8s.io/v1/{_IN}/endpointslices", EndpointSliceObject),
    "deployments": _Read(f"/apis/apps/v1/{_IN}/deployments", ReplicasObject),
    "daemon_sets": _Read("/apis/apps/v1/namespaces/kube-system/daemonsets", ClusterObject),
    "pods": _Read(f"/api/v1/{_IN}/pods", PodObject),
    "budgets": _Read(f"/apis/policy/v1/{_IN}/poddisruptionbudgets", BudgetObject),
    "network_policies": _Read(f"/apis/networking.k8s.io/v1/{_IN}/networkpolicies", NetworkPolicyObject),
    "leases": _Read(f"/apis/coordination.k8s.io/v1/{_IN}/leases", LeaseHolderObject),
    "workload_pods": _Read("/api/v1/pods", PodObject),
    "replica_sets": _Read("/apis/apps/v1/replicasets", ReplicasObject),
    "failures": _Read("/api/v1/events", FailureEvent, "reason=FailedCreate"),
}
"""By the name of the fact."""


@dataclass
class Reading:
    """Values of facts by name, and the reasons for those that could not be read."""

    values: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def on_creation_failed(self, fact: str, right: str, error: ApiError) -> None:
        """Note why a read failed; `right` is the right that it needs, as returned by `describe_right`."""
        self.unread[fact] = f"you may not {right}" if error.is_forbidden else f"cannot {right}: {error}"

    def note_lost_fields(self, fact: str, fields: Mapping[str, str]) -> None:
        """Note fields that were left out of an object or of a list."""
        self.unread |= {f"{fact} {field}": f"cannot read it: {reason}" for field, reason in fields.items()}

    def note_doubt(self, fact: str, fields: Mapping[str, str]) -> None:
        """Note that checks cannot use a fact, because fields were left out of it."""
        if fields:
            self.unread[fact] = "; ".join(f"cannot read {field}: {reason}" for field, reason in fields.items())


def describe_right(verb: str, path: str) -> str:
    """Return the right to read a path, as RBAC words it, such as `get pods named web in shop`."""
    _, root, *parts = path.split("/")
    group = f".{parts.pop(0)}" if root == "apis" else ""
    parts = parts[1:]  # without the version
    where = f" in {parts[1]}" if parts[0] == "namespaces" and len(parts) > 2 else ""  # noqa: PLR2004  NAME, resource
    resource, *names = parts[2:] if where else parts
    return " ".join([verb, f"{resource}{group}", *(f"named {name}" for name in names)]) + where


async def read_version(client: ApiClient) -> tuple[str, int | None]:
    """Return the version of the API server, and its clock in microseconds, None without a Date header. ApiError."""
    body, date = await request_dated(client, "/version", SECONDS)
    version = decode_object(body, _Version).git_version
    try:
        return version, int(parsedate_to_datetime(date).timestamp()) * 1_000_000
    except ValueError:
        return version, None


async def read_objects(client: ApiClient) -> Reading:
    """Read all lists, and the documents of Podgate."""
    reading = Reading()
    maps = {
        "policy_map": NAME,
        "overrides_map": OVERRIDES,
        "scheduler_map": _SCHEDULER,
        "wake_map": _WAKE,
        "record_map": INSTALLATION,
    }
    await asyncio.gather(
        *(_read_list(client, reading, fact, read) for fact, read in _LISTS.items()),
        *(_read_map(client, reading, fact, name) for fact, name in maps.items()),
    )
    return reading


async def read_secret(client: ApiClient, name: str) -> Mapping[str, str] | None:
    """Return the data of a Secret in Podgate's namespace, in base64; None if there is none. ApiError."""
    try:
        body = await send_request(client, "GET", f"/api/v1/{_IN}/secrets/{name}", SECONDS)
    except ApiError as error:
        if error.is_absent:
            return None
        raise
    return decode_object(body, ConfigMap).data or {}


async def _read_list(client: ApiClient, reading: Reading, fact: str, read: _Read) -> None:
    query: Sequence[tuple[str, str]] = (("limit", _OBJECTS_MAX),)
    if read.fields:
        query = (*query, ("fieldSelector", read.fields))
    try:
        body = await send_request(client, "GET", read.path, SECONDS, query)
        listed, lost = decode_items(body, read.kind)
    except ApiError as error:
        reading.on_creation_failed(fact, describe_right("list", read.path), error)
    except UNREADABLE_JSON as error:
        reading.unread[fact] = f"cannot read {read.path}: {error}"
    else:
        reading.values[fact] = listed
        reading.note_doubt(fact, lost)


async def _read_map(client: ApiClient, reading: Reading, fact: str, name: str) -> None:
    path = f"/api/v1/{_IN}/configmaps/{name}"
    try:
        body = await send_request(client, "GET", path, SECONDS)
        found, lost = decode_fields(body, ConfigMap)
        reading.values[fact] = await read_whole(client, found, SECONDS) if name == NAME else found
        reading.note_doubt(fact, lost)
    except ApiError as error:
        if error.is_absent:
            reading.values[fact] = None
        else:
            reading.on_creation_failed(fact, describe_right("get", path), error)
    except UNREADABLE_JSON as error:
        reading.unread[fact] = f"cannot read {path}: {error}"
