"""Uninstaller: deletes the webhooks first, then all other objects, the namespace last, and keys in Redis if asked."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.adapters.clocks import SystemClock
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.installation import removal
from webhook.core.installation.call_remedies import FLAG
from webhook.core.installation.objects import FIELD_MANAGER, Json, ObjectReference
from webhook.core.installation.plan import NAMESPACE
from webhook.core.installation.record import RECORD, SCHEDULER, InstallationRecord
from webhook.core.placement import SERVICE_LABEL
from webhook.errors import GateError, StoreFailure, StoreUnavailableError, UserError
from webhook.operations.installer import InstallProgress
from webhook.operations.shipped_manifests import read_manifest_files
from webhook.ports import GateClient, StoreReports
from webhook.ports.store_url import StoreFiles
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.redaction import mask

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects


_SECONDS = 30.0


async def delete_keys(url: str, cluster: str, password: Path | None) -> int:
    """Delete the keys of a cluster; return how many there were. UserError: no access, or a wrong URL."""
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load

    store = redis_store.RedisStore(
        redis_store.open_transport(url, StoreFiles(password_file=password)),
        cluster,
        SystemClock(),
        StoreReports(_ignore, _ignore, _ignore),
        deadline_seconds=_SECONDS,
    )
    try:
        await store.ping()
        return await store.forget()
    except StoreUnavailableError as error:
        remedy = "the user needs SCAN and UNLINK on ~podgate:*: docs/redis.md"
        raise UserError(f"--redis: {mask(url)!r}: {error}", remedy) from None
    finally:
        await store.close()


def _ignore(*_: StoreFailure) -> None:
    """Ignore a report: the command shows the error itself."""


DELETED = "deleted"
_POLL_SECONDS = 0.25
_REMINDER_SECONDS = 5.0
_REMINDER = "podgate.io/deletion-awaited"
_PODS = ObjectReference("v1", "Pod", "")
_API_SERVERS = ObjectReference("v1", "Pod", "", "kube-system")
_COUNTED_MAX = 500
_UNSCHEDULED = "spec.nodeName=,status.phase=Pending"
_SCHEDULER_PODS = f"spec.schedulerName={SCHEDULER},spec.nodeName=,status.phase=Pending"
_RELEASES_MAX = 16


@dataclass(frozen=True, slots=True)
class UninstallTerms:
    """What to keep, and how long to wait until the namespace is gone; `is_dry`: delete nothing."""

    is_dry: bool
    keeps_namespace: bool
    keeps_policy: bool
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Leftovers of a removal that people must handle."""

    pods: int
    """Live Pods with Podgate's label; at most 500 are counted."""
    flagged_nodes: tuple[str, ...]
    """Nodes whose kube-apiserver still reads the files of Podgate."""
    released: int
    """Waiting Pods whose gates were removed: nobody else would."""
    server_url: str
    """The server outside the cluster, "" if the installation had none."""
    unscheduled: int = 0
    """Pods without a node that name the removed scheduler; at most 500 are counted."""


async def uninstall(kubeconfig: Kubeconfig, terms: UninstallTerms, progress: InstallProgress) -> Leftovers:
    """Remove Podgate from a cluster; return what is left. UserError: a missing right, or objects of others."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        cluster, gates = kubernetes.ClusterObjects(client), kubernetes.PodGates(client)
        return await Uninstaller(cluster, gates, terms, progress).run()
    finally:
        await client.close()


class Uninstaller:
    """Deletes the objects of every way to install and those that Podgate created, and releases waiting Pods."""

    def __init__(
        self, cluster: "ClusterObjects", gates: GateClient, terms: UninstallTerms, progress: InstallProgress
    ) -> None:
        self._cluster = cluster
        self._gates = gates
        self._terms = terms
        self._progress = progress
        self._definitions: list[ObjectReference] = []
        """Deleted CustomResourceDefinitions: the API server deletes their objects first, which may take minutes."""

    async def run(self) -> Leftovers:
        namespace, record = [await self._cluster.get(reference) for reference in (NAMESPACE, RECORD)]
        inside = [item for kind in removal.IN_NAMESPACE for item in await self._list_items(kind)] if namespace else []
        keeps_namespace = self._terms.keeps_namespace or self._terms.keeps_policy
        others = [str(ObjectReference.from_document(document)) for document in inside if removal.is_foreign(document)]
        if others and not keeps_namespace:
            remedy = "move or delete them first, or give --keep-namespace, which removes all but the namespace and them"
            if any("/sh.helm.release." in name for name in others):
                remedy = "a Helm release is there: helm uninstall it first"
            raise UserError(f"{NAMESPACE}: contains objects that are not Podgate's: {', '.join(others)}", remedy)
        shipped = removal.list_removed(
            document for documents in read_manifest_files().values() for document in documents
        )
        await self._delete(reference for reference in shipped if reference.namespace != NAMESPACE.name)
        await self._delete(self._select_inside(inside))
        if namespace is not None and not keeps_namespace and removal.is_ours(namespace):
            await self._delete_namespace()
        await self._check_webhooks(shipped)
        released = await self._release_waiting()
        for definition in self._definitions:
            await self._await_gone(definition)
        return await self._count_leftovers(released, InstallationRecord.from_config_map(record or {}).server_url)

    def _select_inside(self, found: Iterable[Json]) -> list[ObjectReference]:
        """Return the objects in the namespace that are deleted."""
        kept = removal.POLICIES if self._terms.keeps_policy else ()
        ours = (ObjectReference.from_document(document) for document in found if removal.is_of_podgate(document))
        return [reference for reference in ours if reference.name not in kept]

    async def _list_items(self, kind: ObjectReference) -> list[Json]:
        """Return the objects of a kind; a list does not repeat the kind in its items."""
        found = await self._cluster.items(kind)
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in found]

    async def _delete(self, references: Iterable[ObjectReference]) -> None:
        for reference in references:
            live = await self._cluster.get(reference)
            if live is None:
                continue
            if reference.namespace != NAMESPACE.name and not removal.is_ours(live):
                self._progress.on_object(reference, "kept: it has no label app.kubernetes.io/name of Podgate")
                continue
            if not self._terms.is_dry:
                await self._cluster.delete(reference)
            self._progress.on_object(reference, DELETED)
            if reference.kind == "CustomResourceDefinition" and not self._terms.is_dry:
                self._definitions.append(reference)

    async def _delete_namespace(self) -> None:
        self._progress.on_object(NAMESPACE, DELETED)
        if not self._terms.is_dry:
            await self._cluster.delete(NAMESPACE)
            await self._await_gone(NAMESPACE)

    async def _await_gone(self, reference: ObjectReference) -> None:
        """Wait until an object with finalizers has been deleted."""
        now_seconds = asyncio.get_running_loop().time
        end_seconds, reminder_seconds = now_seconds() + self._terms.wait_seconds, now_seconds() + _REMINDER_SECONDS
        is_shown = False
        while (live := await self._cluster.get(reference)) is not None:
            if now_seconds() >= end_seconds:
                reasons = "; ".join(removal.list_deletion_obstacles(live))
                remedy = "run this command again, which continues, once that is done"
                raise UserError(f"{reference}: still being deleted: {reasons or 'its objects are'}", remedy)
            if not is_shown:
                self._progress.on_wait(f"{reference} to be gone")
                is_shown = True
            if reference in self._definitions and now_seconds() >= reminder_seconds:
                await self._remind(reference, live["metadata"]["uid"])
                reminder_seconds = now_seconds() + _REMINDER_SECONDS
            await asyncio.sleep(_POLL_SECONDS)

    async def _remind(self, definition: ObjectReference, uid: str) -> None:
        """Change a deleted definition: kube-apiserver may have forgotten it, until its resync after five minutes."""
        annotations = {_REMINDER: str(SystemClock().now_us())}
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/metadata/annotations", "value": annotations},
        ]
        with suppress(UserError):  # it is gone, or this user may not: then the resync is awaited
            await self._cluster.patch(definition, operations, FIELD_MANAGER)

    async def _check_webhooks(self, shipped: list[ObjectReference]) -> None:
        """Check that no running controller has created the webhook configurations again."""
        webhooks = [reference for reference in shipped if reference.kind.endswith("WebhookConfiguration")]
        back = [
            str(reference)
            for reference in webhooks
            if not self._terms.is_dry and await self._cluster.get(reference) is not None
        ]
        if back:
            remedy = "stop podgate serve and podgate controller outside the cluster, and run this command again"
            raise UserError(f"{', '.join(back)}: created again after the removal", remedy)

    async def _release_waiting(self) -> int:
        """Remove the gates of all waiting Pods, and return how many there were."""
        end_seconds = asyncio.get_running_loop().time() + self._terms.wait_seconds
        waiting = await self._list_waiting()
        count = len(waiting)
        while waiting and not self._terms.is_dry:
            slots = asyncio.Semaphore(_RELEASES_MAX)
            failed = [
                failure for failure in await asyncio.gather(*(self._release(pod, slots) for pod in waiting)) if failure
            ]
            waiting = await self._list_waiting()
            if failed and waiting and asyncio.get_running_loop().time() >= end_seconds:
                raise UserError(
                    f"{len(waiting)} Pods keep the gate {QUEUE_GATE}: {failed[0]}", "run this command again"
                )
            if waiting:
                await asyncio.sleep(_POLL_SECONDS)
        return count

    async def _list_waiting(self) -> list[Json]:
        pods = await self._cluster.items(_PODS, fields=_UNSCHEDULED)
        return [
            pod for pod in pods if any(gate["name"] == QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ()))
        ]

    async def _release(self, pod: Json, slots: asyncio.Semaphore) -> str:
        """Remove the gate of a Pod; return why that failed, "" if it did not."""
        metadata = pod["metadata"]
        async with slots:
            try:
                await self._gates.remove(metadata["namespace"], metadata["name"], metadata["uid"])
            except GateError as error:
                return str(error)
        return ""

    async def _count_leftovers(self, released: int, server_url: str) -> Leftovers:
        pods = await self._cluster.items(_PODS, SERVICE_LABEL, _COUNTED_MAX)
        api_servers = await self._cluster.items(_API_SERVERS, "component=kube-apiserver")
        nodes = (server["spec"].get("nodeName", "?") for server in api_servers if _is_flagged(server))
        unscheduled = await self._cluster.items(_PODS, most=_COUNTED_MAX, fields=_SCHEDULER_PODS)
        return Leftovers(len(pods), tuple(sorted(nodes)), released, server_url, len(unscheduled))


def _is_flagged(pod: Json) -> bool:
    """Return whether a kube-apiserver reads Podgate's files."""
    words = [
        word
        for container in pod["spec"]["containers"]
        for word in (*container.get("command", ()), *container.get("args", ()))
    ]
    return any(word.startswith(FLAG) and "podgate" in word for word in words)
