"""Parts of the policy, each in a ConfigMap with a label: listed and watched while the root declares parts."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from kubernetes_asyncio.client import ApiClient
from msgspec.structs import replace

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object
from webhook.adapters.kubernetes.api.objects import Listed, parse_version
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.document import Purpose
from webhook.core.document.assembly import assemble, declares_parts
from webhook.core.document.configmap import (
    KEY,
    LAST_GOOD,
    NAMESPACE,
    PART_LABEL,
    ConfigMap,
    NoDocumentError,
    read_document,
    read_parts,
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
        """Set while the root declares parts."""
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
        await self._receiver.on_parts(*read_parts(self._found.values()))


async def read_whole(client: ApiClient, root: ConfigMap, timeout_seconds: float) -> ConfigMap:
    """Return the ConfigMap of the policy with the document that servers assemble, as it is without parts. ApiError."""
    try:
        raw = read_document(root)
    except NoDocumentError:
        return root
    if not await asyncio.to_thread(declares_parts, raw):
        return root
    former, snapshot = await asyncio.gather(
        _read_former(client, timeout_seconds), list_objects(client, _PARTS, timeout_seconds)
    )
    texts, _ = read_parts(snapshot.items)
    done = await asyncio.to_thread(assemble, raw, texts, Purpose.SERVE, former)
    return replace(root, data={**(root.data or {}), KEY: done.document.decode()})


async def _read_former(client: ApiClient, timeout_seconds: float) -> bytes:
    """Return the last good document, from which the services of bad parts are taken; b"" without one."""
    try:
        body = await send_request(client, "GET", f"{_PARTS.path}/{LAST_GOOD}", timeout_seconds)
        return read_document(decode_object(body, ConfigMap))
    except (ApiError, NoDocumentError):
        return b""
