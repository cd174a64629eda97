"""Last good policy, stored in its own ConfigMap for servers that start while the policy is invalid."""

import asyncio
from typing import Any

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import (
    KEY,
    LAST_GOOD,
    NAMESPACE,
    SIGNATURE_KEY,
    ConfigMap,
    NoDocumentError,
    read_document,
)
from webhook.errors import SignatureError
from webhook.ports import DocumentSignatures, WatchReports
from webhook.support.condition import Condition

PLACE = f"configmap {NAMESPACE}/{LAST_GOOD}"
_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_THIS = f"{_ALL}/{LAST_GOOD}"
_RIGHT = f"create configmaps in {NAMESPACE}, and to get and update {LAST_GOOD}"


class LastGood:
    """The last good policy: read on request, written in the background."""

    def __init__(
        self,
        client: ApiClient,
        reports: WatchReports,
        timing: ApiTiming,
        signatures: DocumentSignatures | None = None,
    ) -> None:
        self._signatures = signatures
        self._client = client
        self._timing = timing
        self._read_failure = Condition(reports.on_trouble, reports.on_over)
        self._write_failure = Condition(reports.on_trouble, reports.on_over)
        self._wanted: bytes | None = None
        self._kept: bytes | None = None
        self._changed = asyncio.Event()

    async def read(self) -> bytes | None:
        """Return the document; None if there is none or it cannot be read."""
        try:
            found = decode_object(await self._get(self._timing.refresh_seconds), ConfigMap)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == NOT_FOUND:
                self._read_failure.leave()
            else:
                self._read_failure.enter(f"cannot read {PLACE}: {error.describe(_RIGHT)}")
            return None
        try:
            document = read_document(found)
            if self._signatures is not None:
                place = f"{PLACE}: data[{SIGNATURE_KEY!r}]"
                await asyncio.to_thread(self._signatures.verify, document, found.read_signature(), place)
        except NoDocumentError:  # it was emptied; the next write restores it
            self._read_failure.leave()
            return None
        except SignatureError as error:
            self._read_failure.enter(str(error))
            return None
        self._read_failure.leave()
        return document

    def keep(self, document: bytes) -> None:
        """Schedule a write of the document. Does not block."""
        self._wanted = document
        self._changed.set()

    async def run(self) -> None:
        """Write scheduled documents until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._write()

    async def _write(self) -> None:
        backoff = self._timing.make_backoff()
        conflicts = 0
        while (wanted := self._wanted) is not None and wanted != self._kept:
            try:
                await self._make_equal(self._build_data(wanted))
            except ApiError as error:
                overtaken = isinstance(error, RefusedError) and error.status == CONFLICT
                conflicts += overtaken
                # Another server wrote first: expected, with the same document. Only repeated conflicts are reported.
                if not overtaken or conflicts > 1:
                    self._write_failure.enter(f"cannot write {PLACE}: {error.describe(_RIGHT)}")
                await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
            else:
                self._kept = wanted
                self._write_failure.leave()

    def _build_data(self, document: bytes) -> dict[str, str]:
        """Return the document with the signature by which it was accepted."""
        signature = None if self._signatures is None else self._signatures.find(document)
        return {KEY: document.decode(), **({SIGNATURE_KEY: signature} if signature else {})}

    async def _make_equal(self, data: dict[str, str]) -> None:
        try:
            found: dict[str, Any] = decode_object(await self._get(self._timing.request_seconds), dict)
        except RefusedError as error:
            if error.status != NOT_FOUND:
                raise
            metadata = {"name": LAST_GOOD, "namespace": NAMESPACE, "labels": LABELS}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            await send_request(self._client, "POST", _ALL, self._timing.request_seconds, body=body)
            return
        if (found.get("data") or {}) == data:
            return
        # The resourceVersion that was read is sent too: a write in between makes this a conflict.
        found["data"] = data
        found.pop("binaryData", None)
        await send_request(self._client, "PUT", _THIS, self._timing.request_seconds, body=found)

    async def _get(self, timeout_seconds: float) -> bytes:
        return await send_request(self._client, "GET", _THIS, timeout_seconds)
