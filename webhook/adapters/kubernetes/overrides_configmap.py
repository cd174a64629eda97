"""Overrides ConfigMap: watched by a server, changed by commands. A missing ConfigMap means no overrides."""

from typing import Any

import msgspec
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object, list_objects
from webhook.adapters.kubernetes.api.objects import LABELS, Listed
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.adapters.kubernetes.self_subject_review import read_own_user
from webhook.core.document.configmap import (
    NAME,
    NAMESPACE,
    OVERRIDES,
    OVERRIDES_KEY,
    ConfigMap,
    NoDocumentError,
    read_document,
)
from webhook.errors import UserError
from webhook.ports import DocumentReceiver, WatchReports

PLACE = f"configmap {NAMESPACE}/{OVERRIDES}"
_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_OVERRIDES = Collection(
    item=ConfigMap,
    items=Listed[ConfigMap],
    path=_ALL,
    name=PLACE,
    right=f"list and watch configmaps named {OVERRIDES} in {NAMESPACE}",
    object_name=OVERRIDES,
)


class ConfigMapOverrides:
    """Passes the content of the ConfigMap to a receiver whenever it changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: DocumentReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._receiver = receiver
        self._timing = timing
        handler = WatchHandler(self._all, self._one, on_unread=self._refuse)
        self._watch = Watch(client, _OVERRIDES, handler, reports=reports, timing=timing)

    async def refresh(self) -> None:
        """Read once, before the watch starts, so that overrides apply from the start. The watch reports failures."""
        try:
            await self._all(await list_objects(self._client, _OVERRIDES, self._timing.refresh_seconds))
        except ApiError:
            return

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._watch.run()

    async def _all(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        if snapshot.unread:
            await self._refuse(snapshot.unread[0], False)  # noqa: FBT003  as below
        else:
            await self._take(snapshot.items[0] if snapshot.items else None)

    async def _refuse(self, unread: UnreadObject, deleted: bool) -> None:  # noqa: FBT001  as below
        if deleted:
            await self._take(None)
        else:
            await self._receiver.on_unreadable([f"{PLACE}: {unread.reason}"])

    async def _one(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        await self._take(None if deleted else changed)

    async def _take(self, found: ConfigMap | None) -> None:
        try:
            await self._receiver.on_document(_document(found), f"{PLACE}: {OVERRIDES_KEY}")
        except NoDocumentError as error:
            await self._receiver.on_unreadable([str(error)])


class ConfigMapOverridesStore:
    """A `ports.OverridesStore`, with the client's permissions.

    With `dry_run` the API server and the webhook check the document, and nothing is stored.
    """

    def __init__(
        self,
        client: ApiClient,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        *,
        dry_run: bool = False,
    ) -> None:
        self._client = client
        self._query = (("dryRun", "All"),) if dry_run else ()
        self._seconds = timing.request_seconds
        self._found: dict[str, Any] | None = None

    @property
    def place(self) -> str:
        return PLACE

    async def read(self) -> bytes:
        self._found = await self._get(OVERRIDES)
        try:
            return _document(None if self._found is None else msgspec.convert(self._found, ConfigMap))
        except NoDocumentError as error:
            raise UserError(str(error)) from None

    async def write(self, raw: bytes) -> bool:
        found = self._found
        # The resourceVersion that was read is sent too: a write in between makes this a conflict.
        method, path, verb = ("POST", _ALL, "create") if found is None else ("PUT", f"{_ALL}/{OVERRIDES}", "update")
        body = found or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": OVERRIDES, "namespace": NAMESPACE, "labels": LABELS},
        }
        body["data"] = {**(body.get("data") or {}), OVERRIDES_KEY: raw.decode()}
        try:
            await send_request(self._client, method, path, self._seconds, self._query, body)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == CONFLICT:
                return False
            right = f"{verb} configmaps named {OVERRIDES} in {NAMESPACE}"
            raise UserError(f"cannot {verb} {PLACE}: {error.describe(right)}") from None
        return True

    async def read_author(self) -> str | None:
        try:
            return await read_own_user(self._client, self._seconds) or None
        except ApiError:
            return None  # an older cluster, or no permission; the cluster's audit log has the user

    async def read_policy(self) -> bytes | None:
        found = await self._get(NAME)
        try:
            return None if found is None else read_document(msgspec.convert(found, ConfigMap))
        except NoDocumentError:
            return None

    async def _get(self, name: str) -> dict[str, Any] | None:
        try:
            return decode_object(
                await send_request(self._client, "GET", f"{_ALL}/{name}", self._seconds), dict[str, Any]
            )
        except ApiError as error:
            if error.is_absent:
                return None
            right = f"get configmaps named {name} in {NAMESPACE}"
            raise UserError(f"cannot read configmap {NAMESPACE}/{name}: {error.describe(right)}") from None


def _document(found: ConfigMap | None) -> bytes:
    """Return the document; b"" if the ConfigMap is missing or empty."""
    if found is None or not (found.data or found.binary_data):
        return b""
    return read_document(found, OVERRIDES_KEY)
