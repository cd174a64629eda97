"""One ConfigMap of Podgate's namespace, read and then replaced, unless somebody else has replaced it in between."""

from collections.abc import Mapping
from typing import Any

import msgspec
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import NAMESPACE, ConfigMap

_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class StoredConfigMap:
    """The ConfigMap as it was read last. With `dry_run` writes are only checked."""

    def __init__(self, client: ApiClient, name: str, timing: ApiTiming, *, dry_run: bool = False) -> None:
        self.place = f"configmap {NAMESPACE}/{name}"
        self._client = client
        self._name = name
        self._query = (("dryRun", "All"),) if dry_run else ()
        self._seconds = timing.request_seconds
        self._found: dict[str, Any] | None = None

    async def read(self) -> ConfigMap | None:
        """Return the ConfigMap, None if there is none. ApiError: it cannot be read."""
        try:
            body = await send_request(self._client, "GET", f"{_ALL}/{self._name}", self._seconds)
        except ApiError as error:
            if not error.is_absent:
                raise
            self._found = None
            return None
        self._found = decode_object(body, dict[str, Any])
        return msgspec.convert(self._found, ConfigMap)

    async def write(self, data: Mapping[str, str]) -> bool:
        """Set these keys, and create the ConfigMap if there was none.

        Return whether it still was as it was read. ApiError: it cannot be written.
        """
        # The resourceVersion that was read is sent too: a write in between makes this a conflict.
        body = self._found or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": NAMESPACE, "labels": LABELS},
        }
        body = {**body, "data": {**(body.get("data") or {}), **data}}
        method, path = ("POST", _ALL) if self._found is None else ("PUT", f"{_ALL}/{self._name}")
        try:
            answer = await send_request(self._client, method, path, self._seconds, self._query, body)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == CONFLICT:
                return False
            raise
        self._found = decode_object(answer, dict[str, Any])
        return True

    def describe_read_failure(self, error: ApiError) -> str:
        """Return what a failed `read` was, with the right that it takes."""
        return self._describe("read", "get", error)

    def describe_write_failure(self, error: ApiError) -> str:
        """Return what a failed `write` was, with the right that it takes."""
        verb = "create" if self._found is None else "update"
        return self._describe(verb, verb, error)

    def _describe(self, deed: str, verb: str, error: ApiError) -> str:
        right = f"{verb} configmaps named {self._name} in {NAMESPACE}"
        return f"cannot {deed} {self.place}: {error.describe(right)}"
