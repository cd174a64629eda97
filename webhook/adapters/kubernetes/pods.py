"""Watch of the cluster's Pods: listed in pages, and followed without gaps as far as the API server's history reaches.

A list does not show Pods that were created and deleted before it. So the watch after a list resumes from the version
that an earlier watch, or the previous leader's, had reached. Its events up to the list's version are older than the
list and only prove that a Pod was created. If that version has expired, continuity restarts with the list.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection
from webhook.adapters.kubernetes.api.objects import Listed, parse_version
from webhook.adapters.kubernetes.api.pages import list_objects, read_pages
from webhook.adapters.kubernetes.api.requests import GONE, ApiError, GarbledError, RefusedError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, ListStart, Watch, WatchHandler
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Amounts, Pod, Resources
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES
from webhook.core.scheduling.claims import VolumePod
from webhook.ports import Clock, Continuity, PodEventHandler, PodLookup, WatchReports
from webhook.support.condition import Condition

VERSION = "podgate.io/watched-version"
SINCE = "podgate.io/watched-since"
"""Annotations from which the next watcher resumes: a resourceVersion, and microseconds since the Unix epoch."""
STORE = "podgate.io/watched-store"
"""Annotation by which the next watcher notices that the store has lost data since; only the store reads it."""

_PODS = Collection(
    item=Pod,
    items=Listed[Pod],
    path="/api/v1/pods",
    name="pods",
    right="list and watch pods in all namespaces",
    fields=",".join(f"metadata.namespace!={name}" for name in sorted(BUILT_IN_EXEMPT_NAMESPACES)),
)


class _HostedPod(VolumePod, frozen=True, gc=False):
    """A Pod whose amounts are checked when it is decoded: what reads them need not expect bad ones."""

    def __post_init__(self) -> None:
        """ValueError: an amount is no quantity."""
        spec = self.spec
        _check_amounts(spec.overhead)
        _check_resources(spec.resources)
        for container in (*(spec.init_containers or ()), *(spec.containers or ())):
            _check_resources(container.resources)


def _check_resources(resources: Resources | None) -> None:
    if resources is not None:
        _check_amounts(resources.requests)
        _check_amounts(resources.limits)


def _check_amounts(amounts: Amounts | None) -> None:
    for name in amounts or ():
        pod_requests.read_amount(amounts, name)


_HOSTED_PODS = replace(_PODS, item=_HostedPod, items=Listed[_HostedPod], fields="")  # type: ignore[arg-type]  # it is invariant
_LISTS_MAX = 3
"""Attempts in a row at a list whose version expires before its last page."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class WatchedPods:
    """A `ports.PodWatch`. It stores no Pods: at any time it holds at most one page of a list."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        resume: Continuity | None = None,
        with_system: bool = False,
    ) -> None:
        """Create it. `with_system`: include the Pods of namespaces that no policy applies to, and check all amounts."""
        self._pods: Collection[Pod] = _HOSTED_PODS if with_system else _PODS
        self._client = client
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._continuity = resume
        self._listed = 0
        """Version of the newest list."""
        self._relist = asyncio.Event()
        self._listing = asyncio.Lock()
        """Held while a list is under way."""
        self._lookup_failure = Condition(reports.on_trouble, reports.on_over)

    @property
    def continuity(self) -> Continuity | None:
        return self._continuity

    def list_again(self) -> None:
        self._relist.set()

    async def run(self, handler: PodEventHandler) -> None:
        """Watch until cancelled."""
        while True:
            self._relist.clear()
            tasks = [asyncio.create_task(self._watch(handler).run()), asyncio.create_task(self._wait_to_list_again())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                [ended, _] = await asyncio.gather(*tasks, return_exceptions=True)
            if isinstance(ended, Exception):
                raise ended

    async def _wait_to_list_again(self) -> None:
        """Wait for a request. A list under way ends first: else frequent requests would let none be complete."""
        await self._relist.wait()
        async with self._listing:
            pass

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        if not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
            return None  # an invalid name must not become part of a path
        asked = replace(self._pods, path=f"/api/v1/namespaces/{namespace}/pods", object_name=name)
        try:
            found = await list_objects(self._client, asked, self._timing.look_seconds)
        except ApiError as error:
            said = error.describe(self._pods.right).replace(f'"{namespace}"', "...")
            self._lookup_failure.enter(f"cannot look up a pod: {said}")
            return None
        self._lookup_failure.leave()
        return PodLookup(found.items[0] if found.items else None, parse_version(found.version))

    def _watch(self, handler: PodEventHandler) -> Watch[Pod]:
        async def page_by_page() -> ListStart:
            async with self._listing:
                return await self._list(handler)

        async def one(pod: Pod, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            if 0 < parse_version(pod.metadata.resource_version) <= self._listed:
                await handler.on_passed(pod)
            else:
                await handler.on_changed(pod, gone=gone)

        async def keep_unless_gone(unread: UnreadObject, gone: bool) -> None:  # noqa: FBT001  as above
            if not 0 < parse_version(unread.version) <= self._listed:
                await handler.on_unread(unread.uid, gone=gone)

        async def everything(_: object) -> None:
            """Do nothing: the list is read in pages."""

        handlers = WatchHandler(everything, one, self._on_reached, self._on_lost, keep_unless_gone)
        return Watch(
            self._client, self._pods, handlers, reports=self._reports, timing=self._timing, lister=page_by_page
        )

    async def _list(self, handler: PodEventHandler) -> ListStart:
        for _ in range(_LISTS_MAX - 1):
            try:
                return await self._pages(handler)
            except RefusedError as error:
                if error.status != GONE:
                    raise
        return await self._pages(handler)

    async def _pages(self, handler: PodEventHandler) -> ListStart:
        await handler.on_list_begun()
        unread: list[UnreadObject] = []

        since_us = version = 0
        async for page, unread_of_page in self._read_pages():
            if not version:
                since_us, version = self._clock.now_us(), parse_version(page.metadata.resource_version)
                if not version:
                    raise GarbledError("a list without a resourceVersion that is a number")
            await handler.on_listed(page.items or ())
            for pod in unread_of_page:
                await handler.on_unread(pod.uid, gone=False)
            unread += unread_of_page
            del page  # it refers to the whole answer
        # Updated only after the last page: a list that fails must not end the continuity.
        self._listed = version
        before = self._continuity
        if before is None or before.version > version:  # etcd restored from a backup: continuity restarts
            before = self._continuity = Continuity(version, since_us)
        await handler.on_list_complete()
        return ListStart(str(before.version), is_older=before.version < version, unread=unread)

    def _read_pages(self) -> AsyncIterator[tuple[Listed[Pod], tuple[UnreadObject, ...]]]:
        return read_pages(self._client, self._pods, self._timing.request_seconds)

    def _on_reached(self, version: str) -> None:
        before = self._continuity
        if before is not None and parse_version(version) > before.version:
            self._continuity = Continuity(parse_version(version), before.since_us)

    def _on_lost(self) -> None:
        self._continuity = None


def make_annotations(continuity: Continuity | None, store: str = "") -> Mapping[str, str]:
    """Return the annotations for the next watcher. `store` describes the store as of the same moment.

    The store is never described alone: a loss that this watcher knows of would be one that the next one must notice.
    """
    if continuity is None:
        return {}
    return {VERSION: str(continuity.version), SINCE: str(continuity.since_us), STORE: store}


def parse_continuity(written: Mapping[str, str]) -> Continuity | None:
    """Parse the annotations; None if they are absent or invalid."""
    version, since_us = parse_version(written.get(VERSION, "")), parse_version(written.get(SINCE, ""))
    return Continuity(version, since_us) if version and since_us else None


def find_store(written: Mapping[str, str]) -> str:
    """Return the description of the store in the annotations, "" without one."""
    return written.get(STORE, "")
