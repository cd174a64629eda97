"""Parts of the policy, each in a ConfigMap with a label: listed and watched while the root declares parts."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, list_objects
from webhook.adapters.kubernetes.api.objects import Listed, parse_version
from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.document.configmap import (
    NAMESPACE,
    PART_LABEL,
    PART_PREFIX,
    ConfigMap,
    NoDocumentError,
    check_label,
    read_document,
)
from webhook.ports import WatchReports

_PARTS = Collection(
    item=ConfigMap,
    items=Listed[ConfigMap],
    path=f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    name=f"configmaps with the label {PART_LABEL} in {NAMESPACE}",
    right=f"list and watch configmaps in {NAMESPACE}",
    labels=PART_LABEL,
)


class PartsReceiver(Protocol):
    """Receiver of the parts."""

    @property
    def are_wanted(self) -> asyncio.Event:
        """Set while the root may declare parts."""
        ...

    def on_parts(self, texts: Mapping[str, bytes], unread: Mapping[str, str]) -> Awaitable[None]:
        """Receive all parts by name, and the reasons for which others have no text."""
        ...

    def on_unreadable_parts(self, reason: str) -> Awaitable[None]:
        """Record that the parts cannot be read."""
        ...


class ConfigMapParts:
    """Passes the texts of all parts to a receiver whenever one of them changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: PartsReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._receiver = receiver
        self._timing = timing
        self._found: dict[str, ConfigMap] = {}
        self._watch = Watch(client, _PARTS, WatchHandler(self._all, self._one), reports=reports, timing=timing)

    async def refresh(self) -> None:
        """Read now, if the root declares parts."""
        if not self._receiver.are_wanted.is_set():
            return
        try:
            snapshot = await list_objects(self._client, _PARTS, self._timing.refresh_seconds)
        except ApiError as error:
            await self._receiver.on_unreadable_parts(f"cannot read {_PARTS.name}: {error.describe(_PARTS.right)}")
        else:
            await self._all(snapshot)

    async def run(self) -> None:
        """Watch while the root declares parts, until cancelled."""
        while True:
            await self._receiver.are_wanted.wait()
            watching = asyncio.create_task(self._watch.run(), name="policy-parts-watch")
            try:
                while self._receiver.are_wanted.is_set() and not watching.done():
                    await asyncio.wait([watching], timeout=self._timing.cool_down_seconds)
            finally:
                watching.cancel()
                await asyncio.wait([watching])

    async def _all(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        self._found = {item.metadata.name: item for item in snapshot.items}
        await self._pass_on()

    async def _one(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        name, version = changed.metadata.name, parse_version(changed.metadata.resource_version)
        known = self._found.get(name)
        if known is not None and version < parse_version(known.metadata.resource_version):
            return  # a refresh has read a newer state
        if deleted:
            self._found.pop(name, None)
        else:
            self._found[name] = changed
        await self._pass_on()

    async def _pass_on(self) -> None:
        texts: dict[str, bytes] = {}
        unread: dict[str, str] = {}
        for config_map in self._found.values():
            # The name decides, and not the label: whoever may write one ConfigMap could name another part.
            part = config_map.metadata.name.removeprefix(PART_PREFIX)
            try:
                check_label(config_map)
                texts[part] = read_document(config_map)
            except NoDocumentError as error:
                texts[part], unread[part] = b"", str(error)
        await self._receiver.on_parts(texts, unread)
