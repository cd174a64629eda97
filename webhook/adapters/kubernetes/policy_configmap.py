"""Policy ConfigMap: watched and passed to a receiver; the policy in force is copied to the last good ConfigMap."""

import asyncio

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.last_good import PLACE as LAST_GOOD_PLACE
from webhook.adapters.kubernetes.last_good import LastGood
from webhook.adapters.kubernetes.watched_configmap import WatchedConfigMap
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

_PLACE = f"configmap {NAMESPACE}/{NAME}"
_CREATE = f"kubectl -n {NAMESPACE} create configmap {NAME} --from-file={KEY}"
_NONE = f"{_PLACE}: there is none: create it, such as with `{_CREATE}`"


class ConfigMapPolicy:
    """A `ConfigMapReceiver`. Passes the policy's document to a receiver whenever it changes."""

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
        self._receiver = receiver
        self._last_good_receiver = last_good_receiver or receiver
        self._has_good = False
        """Whether any document has been valid."""
        self._keeps_last_good = keeps_last_good
        self._signatures = signatures
        self._last_good = LastGood(client, reports, timing, signatures)
        self._watched = WatchedConfigMap(client, NAME, self, reports, timing)

    async def refresh(self) -> None:
        """Read now, unless that was just done."""
        await self._watched.refresh()

    async def run(self) -> None:
        """Watch the policy and store the last good one, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watched.run(), name="policy-configmap-watch")
            tasks.create_task(self._last_good.run(), name="policy-last-good")

    async def read_last_good(self) -> bytes | None:
        """Return the last good document; None if there is none or it cannot be read."""
        return await self._last_good.read()

    def keep_last_good(self, document: bytes) -> None:
        """Keep the document of the policy in force, if this process does that. Does not block."""
        if self._keeps_last_good:
            self._last_good.keep(document)

    async def on_configmap(self, found: ConfigMap | None) -> None:
        await self._take(found)

    async def on_unread_configmap(self, reason: str) -> None:
        await self._take(None, reason)

    async def on_unreadable_configmap(self, reason: str) -> None:
        """Do nothing: the reason is reported, and the policy stays."""

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
