"""Reads of an object of a custom kind, of what it has made down to its Pods, and of what owns a Pod."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.adapters.kubernetes.cluster_facts.pods import PodReader
from webhook.core.diagnosis.facts import CustomFacts
from webhook.core.diagnosis.objects import CustomOwner, ReportedOwner, ReportedPod
from webhook.core.kubernetes.api_groups import CustomKind, is_built_in
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind, add_cron_job, find_claimed_owner_kind
from webhook.core.kubernetes.pod import OwnerReference, PodMetadata

_BETWEEN = tuple(
    kind for kind in WORKLOAD_KINDS if kind.resource in {"deployments", "jobs", "statefulsets", "replicasets"}
)
"""Kinds of Kubernetes whose objects custom kinds make, and from which Pods come."""
_OTHER_GROUPS = {
    "disaggregatedset.x-k8s.io": ("leaderworkersets", "leaderworkerset.x-k8s.io"),
    "trainer.kubeflow.org": ("jobsets", "jobset.x-k8s.io"),
}
"""API groups whose objects make those of another group."""
_MAKING_PODS = frozenset(kind.kind for kind in _BETWEEN if not kind.makes)
_SIBLINGS_MAX = 8
"""How many kinds of the same API group are looked through for objects that make Pods."""
_OWNERS_MAX = 5


class _Served(Struct, frozen=True, rename="camel"):
    """One resource of the API, as discovery lists it."""

    name: str = ""
    singular_name: str = ""
    kind: str = ""
    namespaced: bool = False
    short_names: tuple[str, ...] | None = None
    verbs: tuple[str, ...] | None = None

    def is_called(self, word: str) -> bool:
        return word in {self.name, self.singular_name, self.kind.lower(), *(self.short_names or ())}


class _Resources(Struct, frozen=True):
    resources: tuple[_Served, ...] | None = None


class _Preferred(Struct, frozen=True):
    version: str = ""


class _Group(Struct, frozen=True, rename="camel"):
    preferred_version: _Preferred = _Preferred()


class _Owned(Struct, frozen=True):
    metadata: PodMetadata = PodMetadata()


class CustomObjects(NamedTuple):
    """An object of a custom kind, the controllers of Kubernetes that it has made, and the Pods of all of them."""

    custom: CustomFacts
    owners: tuple[ReportedOwner, ...]
    pods: tuple[ReportedPod, ...]


class CustomObjectReader:
    """Reads with the rights of a `PodReader`, which notes what could not be read."""

    def __init__(self, reader: PodReader) -> None:
        self._reader = reader

    async def read(self, word: str, group: str, name: str) -> CustomObjects | None:
        """Return an object with what it has made; None if it does not exist or cannot be read."""
        what = f"{word}.{group} {name}"
        served = await self._list_kinds(group, what)
        kind = _choose_kind(served, word)
        path = "" if kind is None else f"{self._build_path(kind)}/{name}"
        document = await self._reader.read_object(path, dict[str, Any], what) if path else None
        if kind is None or document is None:
            return None
        root = CustomOwner(metadata=_read_metadata(document), kind=kind.kind)
        kinds = [sibling for resource, sibling in served if "list" in (resource.verbs or ())][:_SIBLINGS_MAX]
        if group in _OTHER_GROUPS:
            other, of_group = _OTHER_GROUPS[group]
            made = _choose_kind(await self._list_kinds(of_group, f"{other}.{of_group}"), other)
            kinds += [] if made is None else [made]
        lists = await asyncio.gather(
            *(self._list_custom(one) for one in kinds), *(self._list_between(one) for one in _BETWEEN)
        )
        pods = await self._reader.pods() or ()
        return _select_made(root, kind, document, [owner for listed in lists for owner in listed], pods)

    async def list_owners(self, pod: ReportedPod) -> tuple[str, ...]:
        """Return what owns the controller of a Pod, as KIND/NAME, the nearest first.

        A Deployment and a CronJob are known by the names of what they make, and are not read.
        """
        if find_claimed_owner_kind(pod.metadata.owner_references, pod.metadata.labels) == "Deployment":
            return ()
        found: list[str] = []
        owner = _find_controller(pod.metadata)
        while owner is not None and len(found) < _OWNERS_MAX and len(add_cron_job(owner.kind, owner.name)) == 1:
            owner = _find_controller(await self._read_owner(owner))
            found += [] if owner is None else [f"{owner.kind}/{owner.name}"]
        return tuple(found)

    async def _read_owner(self, owner: OwnerReference) -> PodMetadata:
        group, _, version = owner.api_version.rpartition("/")
        what = f"{owner.kind.lower()}{f'.{group}' if group else ''} {owner.name}"
        path = next((self._reader.build_path(kind) for kind in _BETWEEN if kind.kind == owner.kind), "")
        if not is_built_in(group):
            served = await self._list_served(group, version, what)
            resource = next((one.name for one in served if one.kind == owner.kind and one.namespaced), "")
            path = self._build_path(CustomKind(group, version, resource, owner.kind)) if resource else ""
        found = await self._reader.read_object(f"{path}/{owner.name}", _Owned, what) if path else None
        is_same = found is not None and found.metadata.uid == owner.uid
        return found.metadata if found is not None and is_same else PodMetadata()

    async def _list_kinds(self, group: str, what: str) -> list[tuple[_Served, CustomKind]]:
        """Return the kinds of an API group that have objects in namespaces; none if the group is not served."""
        found = await self._reader.read_object(f"/apis/{group}", _Group, what)
        version = "" if found is None else found.preferred_version.version
        served = await self._list_served(group, version, what) if version else ()
        return [
            (resource, CustomKind(group, version, resource.name, resource.kind))
            for resource in served
            if resource.namespaced
        ]

    async def _list_served(self, group: str, version: str, what: str) -> tuple[_Served, ...]:
        found = await self._reader.read_object(f"/apis/{group}/{version}", _Resources, what)
        listed = () if found is None else found.resources or ()
        return tuple(resource for resource in listed if "/" not in resource.name)

    async def _list_custom(self, kind: CustomKind) -> tuple[ReportedOwner, ...]:
        found = await self._reader.read_list(self._build_path(kind), _Owned, f"{kind.resource}.{kind.group}") or ()
        return tuple(CustomOwner(metadata=one.metadata, kind=kind.kind) for one in found)

    async def _list_between(self, kind: WorkloadKind) -> tuple[ReportedOwner, ...]:
        found = await self._reader.read_list(self._reader.build_path(kind), ReportedOwner, kind.resource) or ()
        return tuple(replace(one, kind=kind.kind) for one in found)

    def _build_path(self, kind: CustomKind) -> str:
        return f"/apis/{kind.group}/{kind.version}/namespaces/{self._reader.namespace}/{kind.resource}"


def _choose_kind(served: Iterable[tuple[_Served, CustomKind]], word: str) -> CustomKind | None:
    return next((kind for resource, kind in served if resource.is_called(word)), None)


def _read_metadata(document: dict[str, Any]) -> PodMetadata:
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return PodMetadata(name=str(given.get("name")), namespace=str(given.get("namespace")), uid=str(given.get("uid")))


def _find_controller(metadata: PodMetadata) -> OwnerReference | None:
    return next((reference for reference in metadata.owner_references or () if reference.controller), None)


def _select_made(
    root: CustomOwner,
    kind: CustomKind,
    document: dict[str, Any],
    listed: Iterable[ReportedOwner],
    pods: Iterable[ReportedPod],
) -> CustomObjects:
    """Return what an object has made, also by way of others: Pods may own controllers, as leaders of groups do."""
    made: dict[str, ReportedOwner | ReportedPod] = {root.metadata.uid: root}
    left: list[ReportedOwner | ReportedPod] = [*listed, *pods]
    while True:
        more = [one for one in left if any(ref.uid in made for ref in one.metadata.owner_references or ())]
        new = {one.metadata.uid: one for one in more if one.metadata.uid not in made}
        if not new:
            break
        made |= new
    customs = tuple(one for one in made.values() if isinstance(one, CustomOwner))
    owners = tuple(one for one in made.values() if isinstance(one, ReportedOwner) and one not in customs)
    making = tuple(one for one in owners if one.kind in _MAKING_PODS)
    of_it = tuple(one for one in made.values() if isinstance(one, ReportedPod))
    return CustomObjects(CustomFacts(kind, document, customs), making, of_it)
