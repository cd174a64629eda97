"""Last good policy, stored in its own ConfigMap for servers that start while the policy is invalid."""

import asyncio
from typing import Any

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import KEY, LAST_GOOD, NAMESPACE, ConfigMap, NoDocumentError, read_document
from webhook.ports import WatchReports
from webhook.support.condition import Condition

PLACE = f"configmap {NAMESPACE}/{LAST_GOOD}"
_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_THIS = f"{_ALL}/{LAST_GOOD}"
_RIGHT = f"create configmaps in {NAMESPACE}, and to get and update {LAST_GOOD}"


class LastGood:
    """The last good policy: read on request, written in the background."""

    def __init__(self, client: ApiClient, reports: WatchReports, timing: ApiTiming) -> None:
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
        self._read_failure.leave()
        try:
            return read_document(found)
        except NoDocumentError:  # it was emptied; the next write restores it
            return None

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
                await self._make_equal(wanted.decode())
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

    async def _make_equal(self, text: str) -> None:
        try:
            found: dict[str, Any] = decode_object(await self._get(self._timing.request_seconds), dict)
        except RefusedError as error:
            if error.status != NOT_FOUND:
                raise
            metadata = {"name": LAST_GOOD, "namespace": NAMESPACE, "labels": LABELS}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
            await send_request(self._client, "POST", _ALL, self._timing.request_seconds, body=body)
            return
        if (found.get("data") or {}) == {KEY: text}:
            return
        # The resourceVersion that was read is sent too: a write in between makes this a conflict.
        found["data"] = {KEY: text}
        found.pop("binaryData", None)
        await send_request(self._client, "PUT", _THIS, self._timing.request_seconds, body=found)

    async def _get(self, timeout_seconds: float) -> bytes:
        return await send_request(self._client, "GET", _THIS, timeout_seconds)
