"""Reads of a workload of any kind for `podgate explain`: its controllers and its Pods, and what owns a Pod."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.commands.explain_target import CustomKindName, ExplainTarget
from webhook.core.diagnosis.facts import CustomFacts
from webhook.core.diagnosis.objects import ReportedMaker, ReportedOwner, ReportedPod

if TYPE_CHECKING:
    from webhook.adapters.kubernetes.cluster_facts import CustomObjectReader, PodReader


@dataclass
class WorkloadObjects:
    """A workload, the controllers of Kubernetes that make its Pods, and these Pods, as far as the cluster shows them.

    `maker`, `custom`: the workload itself, if it is not the only one of `owners`.
    """

    kind: str
    maker: ReportedMaker | None = None
    custom: CustomFacts | None = None
    owners: tuple[ReportedOwner, ...] = ()
    pods: tuple[ReportedPod, ...] = ()

    @property
    def creators(self) -> tuple[ReportedOwner, ...]:
        """The objects that may create Pods themselves."""
        return (*self.owners, *(() if self.custom is None else self.custom.owners))

    @property
    def uids(self) -> set[str]:
        """Those of the workload and its controllers: Events about them tell why Pods are missing."""
        own = set() if self.maker is None else {self.maker.metadata.uid}
        return own | {owner.metadata.uid for owner in self.creators}


class WorkloadReads:
    """Reads with the user's rights; `reader` and `customs` are None without a cluster."""

    def __init__(self, reader: "PodReader | None", customs: "CustomObjectReader | None") -> None:
        self._reader = reader
        self._customs = customs

    async def read(self, target: ExplainTarget) -> WorkloadObjects:
        """Return a workload that a target names."""
        if target.custom is not None:
            return await self._read_custom(target.custom, target.name)
        if target.kind is None:
            raise LookupError("the target is a Pod")
        found = WorkloadObjects(target.kind.kind)
        if self._reader is not None:
            found.maker, found.owners = await self._reader.controllers(target.kind, target.name)
            uids = {owner.metadata.uid for owner in found.owners}
            listed = await self._reader.pods() if found.uids else ()
            found.pods = tuple(pod for pod in listed or () if _list_owner_uids(pod) & uids)
        return found

    async def _read_custom(self, kind: CustomKindName, name: str) -> WorkloadObjects:
        made = None if self._customs is None else await self._customs.read(kind.word, kind.group, name)
        if made is None:
            return WorkloadObjects(kind.word)
        return WorkloadObjects(made.custom.kind.kind, custom=made.custom, owners=made.owners, pods=made.pods)

    async def list_owners(self, pod: ReportedPod | None) -> tuple[str, ...]:
        """Return what owns the controller of a Pod, as KIND/NAME, the nearest first."""
        return () if pod is None or self._customs is None else await self._customs.list_owners(pod)


def _list_owner_uids(pod: ReportedPod) -> set[str]:
    return {reference.uid for reference in pod.metadata.owner_references or () if reference.controller}
