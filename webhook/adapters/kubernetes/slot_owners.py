"""Slot owners: how many Pods a ReplicaSet or a Job runs at once, and which slots its living Pods carry."""

import asyncio
from collections.abc import Mapping
from urllib.parse import quote

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import Collection, decode_object
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.pages import read_pages
from webhook.adapters.kubernetes.api.requests import ApiError, UnreachedError, send_request
from webhook.core.kubernetes.pod import OwnerReference
from webhook.core.shares import CLAIM_ANNOTATION, SlotOwner, read_slot_number
from webhook.ports import HeldSlot, OwnedPods
from webhook.support.condition import Condition

_REQUEST_SECONDS = 5.0
_ROLE = "ClusterRole podgate"
_CLAIM_CHARACTERS_MAX = 64
"""A claim is a uid. A Pod may carry any text in its place."""
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    deletion_timestamp: str | None = None
    resource_version: str = ""


class _ReplicaSetSpec(Struct, frozen=True):
    replicas: int | None = None

    @property
    def wanted(self) -> int | None:
        return self.replicas


class _ReplicaSet(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _ReplicaSetSpec = _ReplicaSetSpec()


class _JobSpec(Struct, frozen=True):
    parallelism: int | None = None

    @property
    def wanted(self) -> int | None:
        return self.parallelism


class _Job(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSpec = _JobSpec()


_KINDS: Mapping[str, tuple[str, str, type[_ReplicaSet | _Job]]] = {
    "ReplicaSet": ("apps", "replicasets", _ReplicaSet),
    "Job": ("batch", "jobs", _Job),
}


class _PodMetadata(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class SlotOwnerReader:
    """A `ports.SlotOwners`. Its list is consistent: it shows each Pod that has been created before it is asked for."""

    def __init__(
        self, client: ApiClient, trouble: Condition[str], *, request_seconds: float = _REQUEST_SECONDS
    ) -> None:
        """Create it. `trouble` is entered with the reason why slots are guessed."""
        self._client = client
        self._trouble = trouble
        self._failing = set[str]()
        """Kinds that could not be read when they were last asked for."""
        self._request_seconds = request_seconds

    async def read_replicas(self, owner: SlotOwner) -> int | None:
        group, resource, kind = _KINDS[owner.kind]
        path = f"/apis/{group}/v1/namespaces/{owner.namespace}/{resource}/{quote(owner.name, safe='')}"
        try:
            found = decode_object(await send_request(self._client, "GET", path, self._request_seconds), kind)
        except ApiError as error:
            if error.is_absent:
                return 0
            self._enter(owner.kind, error.describe(f"get {resource}.{group} in all namespaces ({_ROLE})"))
            return None
        self._leave(owner.kind)
        if found.metadata.uid != owner.uid:
            return 0
        return 1 if found.spec.wanted is None else found.spec.wanted

    async def list_held(self, owner: SlotOwner) -> OwnedPods | None:
        label, value = owner.selector
        pods = Collection(
            item=_PodMetadata,
            items=Listed[_PodMetadata],
            path=f"/api/v1/namespaces/{owner.namespace}/pods",
            name="Pods",
            right=f"list pods in all namespaces ({_ROLE})",
            fields=_LIVING,
            labels=f"{label}={value}" if label else "",
            is_metadata=True,
        )
        try:
            held, living = await self._read_held_slots(pods, owner)
        except ApiError as error:
            self._enter("Pod", error.describe(pods.right))
            return None
        self._leave("Pod")
        return OwnedPods(tuple(held), living)

    async def _read_held_slots(self, pods: Collection[_PodMetadata], owner: SlotOwner) -> tuple[list[HeldSlot], int]:
        """Return the slots, and the number of living Pods. Of a page it keeps nothing else: Pods may be large."""
        slots, living = list[HeldSlot](), 0
        try:
            async with asyncio.timeout(2 * self._request_seconds):  # a page has its own timeout
                async for page, _ in read_pages(self._client, pods, self._request_seconds, most=0):
                    for pod in page.items or ():
                        if _is_living(pod.metadata, owner.uid):
                            living += 1
                            held = _read_held(pod.metadata.annotations or {})
                            slots += () if held is None else (held,)
        except TimeoutError:
            raise UnreachedError("no answer in time") from None
        return slots, living

    def _enter(self, kind: str, reason: str) -> None:
        self._failing.add(kind)
        self._trouble.enter(reason)

    def _leave(self, kind: str) -> None:
        self._failing.discard(kind)
        if not self._failing:
            self._trouble.leave()


def _is_living(metadata: _Metadata, owner: str) -> bool:
    owners = metadata.owner_references or ()
    return metadata.deletion_timestamp is None and any(found.controller and found.uid == owner for found in owners)


def _read_held(annotations: dict[str, str]) -> HeldSlot | None:
    slot, claim = read_slot_number(annotations), annotations.get(CLAIM_ANNOTATION, "")
    return HeldSlot(slot, claim) if slot and len(claim) <= _CLAIM_CHARACTERS_MAX else None
