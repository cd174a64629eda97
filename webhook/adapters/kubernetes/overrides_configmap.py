"""Overrides ConfigMap: watched by a server, changed by commands. A missing ConfigMap means no overrides."""

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.self_subject_review import read_own_user
from webhook.adapters.kubernetes.stored_configmap import StoredConfigMap
from webhook.adapters.kubernetes.watched_configmap import WatchedConfigMap
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


class ConfigMapOverrides:
    """A `ConfigMapReceiver`. Passes the content to a receiver whenever it changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: DocumentReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._receiver = receiver
        self._watched = WatchedConfigMap(client, OVERRIDES, self, reports, timing)

    async def refresh(self) -> None:
        """Read once, before the watch starts, so that overrides apply from the start."""
        await self._watched.refresh()

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._watched.run()

    async def on_configmap(self, found: ConfigMap | None) -> None:
        try:
            await self._receiver.on_document(_document(found), f"{PLACE}: {OVERRIDES_KEY}")
        except NoDocumentError as error:
            await self._receiver.on_unreadable([str(error)])

    async def on_unread_configmap(self, reason: str) -> None:
        await self._receiver.on_unreadable([reason])

    async def on_unreadable_configmap(self, reason: str) -> None:
        """Do nothing: the reason is reported, and what was read before still holds."""


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
        self._timing = timing
        self._stored = StoredConfigMap(client, OVERRIDES, timing, dry_run=dry_run)

    @property
    def place(self) -> str:
        return PLACE

    async def read(self) -> bytes:
        found = await _read(self._stored)
        try:
            return _document(found)
        except NoDocumentError as error:
            raise UserError(str(error)) from None

    async def write(self, raw: bytes) -> bool:
        try:
            return await self._stored.write({OVERRIDES_KEY: raw.decode()})
        except ApiError as error:
            raise UserError(self._stored.describe_write_failure(error)) from None

    async def read_author(self) -> str | None:
        try:
            return await read_own_user(self._client, self._timing.request_seconds) or None
        except ApiError:
            return None  # an older cluster, or no permission; the cluster's audit log has the user

    async def read_policy(self) -> bytes | None:
        found = await _read(StoredConfigMap(self._client, NAME, self._timing))
        try:
            return None if found is None else read_document(found)
        except NoDocumentError:
            return None


async def _read(stored: StoredConfigMap) -> ConfigMap | None:
    try:
        return await stored.read()
    except ApiError as error:
        raise UserError(stored.describe_read_failure(error)) from None


def _document(found: ConfigMap | None) -> bytes:
    """Return the document; b"" if the ConfigMap is missing or empty."""
    if found is None or not (found.data or found.binary_data):
        return b""
    return read_document(found, OVERRIDES_KEY)
