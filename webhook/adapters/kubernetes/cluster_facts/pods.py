"""Reads of a Pod, a workload with its controllers and Pods, their Events, and Nodes. Failures are noted."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import msgspec
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.adapters.kubernetes.cluster_facts.decode import decode_fields, decode_items
from webhook.adapters.kubernetes.cluster_facts.reading import SECONDS, Reading, describe_right
from webhook.adapters.kubernetes.policy_parts import read_whole
from webhook.core.diagnosis.objects import (
    ReportedEvent,
    ReportedMaker,
    ReportedNamespace,
    ReportedNode,
    ReportedOwner,
    ReportedPod,
)
from webhook.core.document.configmap import NAME, NAMESPACE, ConfigMap
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind

_OBJECTS_MAX = "5000"
_KINDS = {kind.kind: kind for kind in WORKLOAD_KINDS}

T = TypeVar("T")


class PodReader:
    """Reads objects of a namespace with the user's own rights; `reading.unread` has the failed reads, with the reasons.

    `namespace` is "" for all namespaces.
    """

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.reading = Reading()
        self._client = client
        self.namespace = namespace

    @property
    def _core(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}" if self.namespace else "/api/v1"

    async def pod(self, name: str) -> ReportedPod | None:
        return await self.read_object(f"{self._core}/pods/{name}", ReportedPod, f"pod {name}")

    async def pods(self) -> tuple[ReportedPod, ...] | None:
        return await self.read_list(f"{self._core}/pods", ReportedPod, "pods")

    async def find_by_uid(self, uid: str, namespace: str) -> ReportedPod | None:
        """Return a Pod, and read its namespace from then on; `namespace` is "" if it is not known."""
        self.namespace = namespace
        found: ReportedPod | None = next((pod for pod in await self.pods() or () if pod.metadata.uid == uid), None)
        if found is not None:
            self.namespace = found.metadata.namespace
        return found

    async def events(self) -> tuple[ReportedEvent, ...]:
        return await self.read_list(f"{self._core}/events", ReportedEvent, "events") or ()

    async def list_events_of_pod(self, pod: str, uid: str = "") -> tuple[ReportedEvent, ...]:
        """Return the Events about the Pods of a name, or of one of them."""
        selected = {"kind": "Pod", "name": pod, "uid": uid}
        fields = (
            ("fieldSelector", ",".join(f"involvedObject.{key}={value}" for key, value in selected.items() if value)),
        )
        return await self.read_list(f"{self._core}/events", ReportedEvent, "events", fields) or ()

    async def nodes(self) -> tuple[ReportedNode, ...] | None:
        return await self.read_list("/api/v1/nodes", ReportedNode, "nodes")

    async def hosts(
        self, names: Collection[str], listed: Sequence[ReportedNode] | None
    ) -> dict[str, ReportedNode | None] | None:
        """Return Nodes by name, None for one that does not exist; None instead if one cannot be read.

        `listed` are all Nodes, if they have been read.
        """
        if listed is not None:
            by_name = {node.metadata.name: node for node in listed}
            return {name: by_name.get(name) for name in names}
        reads = (self.read_object(f"/api/v1/nodes/{name}", ReportedNode, f"node {name}") for name in names)
        found = await asyncio.gather(*reads)
        is_unread = any(f"node {name}" in self.reading.unread for name in names)
        return None if is_unread else dict(zip(names, found, strict=True))

    async def read_namespace(self) -> ReportedNamespace | None:
        if not self.namespace:
            return None
        return await self.read_object(self._core, ReportedNamespace, f"namespace {self.namespace}")

    async def policy(self, name: str = NAME) -> ConfigMap | None:
        """Return the ConfigMap of the policy in force, or another one with a policy."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
        found = await self.read_object(path, ConfigMap, f"configmap {name} in {NAMESPACE}")
        if found is None or name != NAME:
            return found
        try:
            return await read_whole(self._client, found, SECONDS)
        except ApiError:
            return found  # the rights to its parts are missing: the servers' documents are asked first

    async def controllers(
        self, kind: WorkloadKind, name: str
    ) -> tuple[ReportedMaker | None, tuple[ReportedOwner, ...]]:
        """Return a workload that makes controllers, None for one that creates its Pods itself, and the controllers.

        These are the controllers that want or have Pods, or the newest if none does.
        """
        what = f"{kind.shown} {name}"
        if not kind.makes:
            owner = await self.read_object(f"{self.build_path(kind)}/{name}", ReportedOwner, what)
            return None, () if owner is None else (msgspec.structs.replace(owner, kind=kind.kind),)
        maker = await self.read_object(f"{self.build_path(kind)}/{name}", ReportedMaker, what)
        if maker is None:
            return None, ()
        owned = await self._list_owned(_KINDS[kind.makes], maker.metadata.uid)
        newest = sorted(owned, key=lambda owner: owner.metadata.creation_timestamp or "")[-1:]
        controllers = tuple(owner for owner in owned if owner.wanted or owner.present) or tuple(newest)
        return msgspec.structs.replace(maker, kind=kind.kind), controllers

    async def _list_owned(self, kind: WorkloadKind, uid: str) -> tuple[ReportedOwner, ...]:
        """Return the controllers of a kind that an object owns, such as the ReplicaSets of a Deployment."""
        found = await self.read_list(self.build_path(kind), ReportedOwner, kind.resource) or ()
        return tuple(
            msgspec.structs.replace(controller, kind=kind.kind)
            for controller in found
            if any(owner.uid == uid for owner in controller.metadata.owner_references or ())
        )

    def build_path(self, kind: WorkloadKind) -> str:
        """Return the path of the objects of a kind in the namespace."""
        group = f"/apis/{kind.group}/v1" if kind.group else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind.resource}"

    async def read_object(self, path: str, kind: type[T], what: str) -> T | None:
        """Return one object, None if it does not exist or cannot be read; `what` names it in `reading.unread`."""
        try:
            body = await send_request(self._client, "GET", path, SECONDS)
            found, lost = decode_fields(body, kind)
        except ApiError as error:
            if not error.is_absent:
                self.reading.on_creation_failed(what, describe_right("get", path), error)
        except UNREADABLE_JSON as error:
            self.reading.unread[what] = f"cannot read it: {error}"
        else:
            self.reading.note_lost_fields(what, lost)
            return found
        return None

    async def read_list(
        self, path: str, kind: Any, what: str, query: Sequence[tuple[str, str]] = ()
    ) -> tuple[Any, ...] | None:
        """Return the objects of a path, None if they cannot be read; `what` names them in `reading.unread`."""
        try:
            body = await send_request(self._client, "GET", path, SECONDS, (("limit", _OBJECTS_MAX), *query))
            listed, lost = decode_items(body, kind)
        except ApiError as error:
            self.reading.on_creation_failed(what, describe_right("list", path), error)
            return None
        except UNREADABLE_JSON as error:
            self.reading.unread[what] = f"cannot read it: {error}"
            return None
        self.reading.note_lost_fields(what, lost)
        return listed
