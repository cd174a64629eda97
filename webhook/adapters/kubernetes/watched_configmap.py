"""One ConfigMap of Podgate's namespace, watched, and read at once on request.

A refresh and the watch may deliver the same state in either order. Versions are compared, so that a late watch event
never reverts what a refresh has read since. A list is always accepted, even an older one: etcd may have been restored
from a backup, and if the list is merely late the watch that follows delivers the rest in a moment.
"""

import asyncio
from typing import Protocol

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, parse_version
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.document.configmap import NAMESPACE, ConfigMap
from webhook.ports import WatchReports
from webhook.support.condition import Condition


class ConfigMapReceiver(Protocol):
    """Receiver of the states of one ConfigMap, one at a time."""

    async def on_configmap(self, found: ConfigMap | None) -> None:
        """Receive its newest state; None: there is none."""
        ...

    async def on_unread_configmap(self, reason: str) -> None:
        """Record that its newest state cannot be decoded."""
        ...

    async def on_unreadable_configmap(self, reason: str) -> None:
        """Record that a refresh has failed. What was received before still holds."""
        ...


class WatchedConfigMap:
    """Passes the ConfigMap to a receiver whenever it changes."""

    def __init__(
        self, client: ApiClient, name: str, receiver: ConfigMapReceiver, reports: WatchReports, timing: ApiTiming
    ) -> None:
        self.place = f"configmap {NAMESPACE}/{name}"
        self._collection = Collection(
            item=ConfigMap,
            items=Listed[ConfigMap],
            path=f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            name=self.place,
            right=f"list and watch configmaps named {name} in {NAMESPACE}",
            object_name=name,
        )
        self._client = client
        self._receiver = receiver
        self._timing = timing
        self._on_contact = reports.on_contact
        self._failure = Condition(reports.on_trouble, reports.on_over)
        handler = WatchHandler(self._on_listed, self._on_changed, on_unread=self._on_unread)
        self._watch = Watch(client, self._collection, handler, reports=reports, timing=timing)
        self._receiving = asyncio.Lock()
        self._version = 0
        """resourceVersion of the newest state received."""
        self._reading: asyncio.Task[None] | None = None
        self._rested_at = 0.0
        """Earliest time of the next refresh, by the loop's clock."""

    async def refresh(self) -> None:
        """Read now, unless that was just done. Callers share one read; a cancelled caller does not cancel it."""
        if self._reading is None or self._reading.done():
            if asyncio.get_running_loop().time() < self._rested_at:
                return
            self._reading = asyncio.create_task(self._read(), name=f"{self.place} read")
        reading = self._reading
        await asyncio.wait([reading])
        if not reading.cancelled():
            reading.result()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._watch.run()
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def _read(self) -> None:
        try:
            snapshot = await list_objects(self._client, self._collection, self._timing.refresh_seconds)
        except ApiError as error:
            reason = f"cannot read {self.place}: {error.describe(self._collection.right)}"
            self._failure.enter(reason)
            await self._receiver.on_unreadable_configmap(reason)
        else:
            self._failure.leave()
            self._on_contact()
            await self._on_listed(snapshot)
        finally:
            self._rested_at = asyncio.get_running_loop().time() + self._timing.cool_down_seconds

    async def _on_listed(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        async with self._receiving:
            self._version = parse_version(snapshot.version)
            if snapshot.unread:
                await self._receiver.on_unread_configmap(f"{self.place}: {snapshot.unread[0].reason}")
            else:
                await self._receiver.on_configmap(snapshot.items[0] if snapshot.items else None)

    async def _on_changed(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler
        async with self._receiving:
            version = parse_version(changed.metadata.resource_version)
            if version > self._version or not version:
                self._version = version
                await self._receiver.on_configmap(None if deleted else changed)

    async def _on_unread(self, unread: UnreadObject, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler
        async with self._receiving:
            self._version = max(self._version, parse_version(unread.version))
            if deleted:
                await self._receiver.on_configmap(None)
            else:
                await self._receiver.on_unread_configmap(f"{self.place}: {unread.reason}")
