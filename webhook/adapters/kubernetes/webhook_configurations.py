"""Webhook configurations: their live state, and writes of their webhooks."""

from collections.abc import Mapping
from typing import Any

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    NOT_FOUND,
    ApiError,
    RefusedError,
    send_request,
)
from webhook.core.webhook_configurations import NAMES, ConfigurationName, OutdatedConfiguration
from webhook.errors import WebhookConfigurationError

FIELD_MANAGER = "podgate-webhooks"
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_RIGHT = (
    "get and patch the webhook configurations podgate and podgate-policy "
    "(ClusterRole podgate-webhooks in manifests/base/11-rbac-webhooks.yaml)"
)
_REQUEST_SECONDS = 5.0


class WebhookConfigurations:
    """A `ports.WebhookConfigurationClient`. It creates and deletes none: that is the installation's work."""

    def __init__(self, client: ApiClient, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._request_seconds = request_seconds

    async def read(self) -> Mapping[ConfigurationName, dict[str, Any]]:
        found = {name: await self._read(name) for name in NAMES}
        return {name: configuration for name, configuration in found.items() if configuration is not None}

    async def write(self, changed: OutdatedConfiguration) -> bool:
        # The version makes the API server refuse the patch (409) if the object has changed since it was read.
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": changed.resource_version},
            {"op": "add", "path": "/webhooks", "value": changed.webhooks},
        ]
        query = (("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict"))
        try:
            await send_request(self._client, "PATCH", _path(changed.name), self._request_seconds, query, patch)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status in {CONFLICT, NOT_FOUND}:
                return False
            raise _make_error("write", changed.name, error) from error
        return True

    async def _read(self, name: ConfigurationName) -> dict[str, Any] | None:
        try:
            body = await send_request(self._client, "GET", _path(name), self._request_seconds)
            return decode_object(body, dict[str, Any])
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == NOT_FOUND:
                return None
            raise _make_error("read", name, error) from error


def _path(name: ConfigurationName) -> str:
    return f"{_GROUP}/{name.kind.lower()}s/{name.name}"


def _make_error(what: str, name: ConfigurationName, error: ApiError) -> WebhookConfigurationError:
    return WebhookConfigurationError(f"{name}: cannot {what}: {error.describe(_RIGHT)}", error.retry_after_seconds)
