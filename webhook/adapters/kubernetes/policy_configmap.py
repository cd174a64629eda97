"""Policy ConfigMap: watched and passed to a receiver; the policy in force is copied to the last good ConfigMap.

A refresh and the watch may deliver the same state in either order. Versions are compared, so that a late watch event
never reverts what a refresh has read since. A list is always accepted, even an older one: etcd may have been restored
from a backup, and if the list is merely late the watch that follows delivers the rest in a moment.
"""

import asyncio

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, list_objects
from webhook.adapters.kubernetes.api.objects import Listed, parse_version
from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.adapters.kubernetes.last_good import PLACE as LAST_GOOD_PLACE
from webhook.adapters.kubernetes.last_good import LastGood
from webhook.core.document.configmap import (
    KEY,
    NAME,
    NAMESPACE,
    SIGNATURE_KEY,
    ConfigMap,
    NoDocumentError,
    read_document,
)
from webhook.errors import SignatureError
from webhook.ports import DocumentReceiver, DocumentSignatures, WatchReports
from webhook.support.condition import Condition

_PLACE = f"configmap {NAMESPACE}/{NAME}"
_POLICY = Collection(
    item=ConfigMap,
    items=Listed[ConfigMap],
    path=f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    name=_PLACE,
    right=f"list and watch configmaps named {NAME} in {NAMESPACE}",
    object_name=NAME,
)
_CREATE = f"kubectl -n {NAMESPACE} create configmap {NAME} --from-file={KEY}"
_NONE = f"{_PLACE}: there is none: create it, such as with `{_CREATE}`"


class ConfigMapPolicy:
    """Passes the policy's document to a receiver whenever it changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: DocumentReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        keeps_last_good: bool = True,
        signatures: DocumentSignatures | None = None,
        last_good_receiver: DocumentReceiver | None = None,
    ) -> None:
        """Create the watch; `keeps_last_good` requires permission to write the last good ConfigMap.

        Without `signatures` every document is passed on. `last_good_receiver`: receiver of the last good document,
        which is assembled already; else `receiver`.
        """
        self._client = client
        self._receiver = receiver
        self._last_good_receiver = last_good_receiver or receiver
        self._has_good = False
        """Whether any document has been valid."""
        self._keeps_last_good = keeps_last_good
        self._on_contact = reports.on_contact
        self._timing = timing
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._signatures = signatures
        self._last_good = LastGood(client, reports, timing, signatures)
        handler = WatchHandler(self._all, self._one, on_unread=self._refuse)
        self._watch = Watch(client, _POLICY, handler, reports=reports, timing=timing)
        self._taking = asyncio.Lock()
        self._version = 0
        """resourceVersion of the newest state processed."""
        self._reading: asyncio.Task[None] | None = None
        self._rested_at = 0.0
        """Earliest time of the next refresh, by the loop's clock."""

    async def refresh(self) -> None:
        """Read now, unless that was just done. Callers share one read; a cancelled caller does not cancel it."""
        if self._reading is None or self._reading.done():
            if asyncio.get_running_loop().time() < self._rested_at:
                return
            self._reading = asyncio.create_task(self._read(), name="policy-configmap-read")
        reading = self._reading
        await asyncio.wait([reading])
        if not reading.cancelled():
            reading.result()

    async def run(self) -> None:
        """Watch the policy and store the last good one, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch.run(), name="policy-configmap-watch")
                tasks.create_task(self._last_good.run(), name="policy-last-good")
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def read_last_good(self) -> bytes | None:
        """Return the last good document; None if there is none or it cannot be read."""
        return await self._last_good.read()

    def keep_last_good(self, document: bytes) -> None:
        """Keep the document of the policy in force, if this process does that. Does not block."""
        if self._keeps_last_good:
            self._last_good.keep(document)

    async def _read(self) -> None:
        try:
            snapshot = await list_objects(self._client, _POLICY, self._timing.refresh_seconds)
        except ApiError as error:
            self._failure.enter(f"cannot read {_PLACE}: {error.describe(_POLICY.right)}")
        else:
            self._failure.leave()
            self._on_contact()
            await self._all(snapshot)
        finally:
            self._rested_at = asyncio.get_running_loop().time() + self._timing.cool_down_seconds

    async def _all(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        async with self._taking:
            self._version = parse_version(snapshot.version)
            if snapshot.unread:
                await self._take(None, f"{_PLACE}: {snapshot.unread[0].reason}")
            else:
                await self._take(snapshot.items[0] if snapshot.items else None)

    async def _refuse(self, unread: UnreadObject, deleted: bool) -> None:  # noqa: FBT001  as below
        async with self._taking:
            self._version = max(self._version, parse_version(unread.version))
            await self._take(None, _NONE if deleted else f"{_PLACE}: {unread.reason}")

    async def _one(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        async with self._taking:
            version = parse_version(changed.metadata.resource_version)
            if version > self._version or not version:
                self._version = version
                await self._take(None if deleted else changed)

    async def _take(self, found: ConfigMap | None, obstacle: str = "") -> None:
        """Take in the document of a ConfigMap. `obstacle`: why the ConfigMap cannot be read."""
        document, missing = (None, obstacle) if obstacle else _read_from(found)
        if not self._has_good:
            # Load the last good policy first: it stays in force if the current one is invalid.
            last_good = await self._last_good.read()
            if last_good is not None and last_good != document:
                self._has_good |= await self._last_good_receiver.on_document(last_good, f"{LAST_GOOD_PLACE}: {KEY}")
        obstacle = missing or await self._verify(document, found)
        if document is None or obstacle:
            await self._receiver.on_unreadable([obstacle])
        else:
            self._has_good |= await self._receiver.on_document(document, f"{_PLACE}: {KEY}")

    async def _verify(self, document: bytes | None, found: ConfigMap | None) -> str:
        """Return why a document is not accepted, "" if it is."""
        if self._signatures is None or document is None or found is None:
            return ""
        place = f"{_PLACE}: data[{SIGNATURE_KEY!r}]"
        try:
            await asyncio.to_thread(self._signatures.verify, document, found.read_signature(), place)
        except SignatureError as error:
            return str(error)
        return ""


def _read_from(found: ConfigMap | None) -> tuple[bytes | None, str]:
    """Return the document, or None and the reason."""
    if found is None:
        return None, _NONE
    try:
        return read_document(found), ""
    except NoDocumentError as error:
        return None, str(error)
