"""ServiceStatus objects: the state of services, for `kubectl get servicestatuses.podgate.io`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, field

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS, ObjectVersion
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, ApiError, RefusedError, send_request
from webhook.errors import ServiceStatusError, ServiceStatusNotInstalledError

NAME = "servicestatuses.podgate.io"
_VERSION = "podgate.io/v1alpha1"
_ALL = f"/apis/{_VERSION}/servicestatuses"
_SELECTOR = f"app.kubernetes.io/managed-by={LABELS['app.kubernetes.io/managed-by']}"
_RIGHT = f"list, create and delete {NAME}, and to patch their status"
_REQUEST_SECONDS = 5.0


class _Read(Struct, frozen=True):
    metadata: ObjectVersion
    status: dict[str, Any] = field(default_factory=dict)


class _Statuses(Struct, frozen=True):
    items: list[_Read] | None = None


class ServiceStatuses:
    """A `ports.ServiceStatusClient`: one object per service, of its name. Lists only objects with Podgate's label."""

    def __init__(self, client: ApiClient, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._request_seconds = request_seconds

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        async with _convert_errors("read"):
            try:
                body = await send_request(
                    self._client, "GET", _ALL, self._request_seconds, (("labelSelector", _SELECTOR),)
                )
            except RefusedError as error:
                raise _convert_absence(error) from error
            return {found.metadata.name: found.status for found in decode_object(body, _Statuses).items or ()}

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        async with _convert_errors(f"write {service}"):
            try:
                await self._replace(service, status)
            except RefusedError as error:
                if error.status != NOT_FOUND:
                    raise
                await self._create(service)
                await self._replace(service, status)

    async def delete(self, service: str) -> None:
        async with _convert_errors(f"delete {service}"):
            try:
                await send_request(self._client, "DELETE", f"{_ALL}/{service}", self._request_seconds)
            except RefusedError as error:
                if error.status != NOT_FOUND:
                    raise

    async def _replace(self, service: str, status: Mapping[str, Any]) -> None:
        # Replaces the whole status: no former field remains.
        patch = [{"op": "add", "path": "/status", "value": status}]
        await send_request(self._client, "PATCH", f"{_ALL}/{service}/status", self._request_seconds, body=patch)

    async def _create(self, service: str) -> None:
        metadata = {"name": service, "labels": LABELS}
        body = {"apiVersion": _VERSION, "kind": "ServiceStatus", "metadata": metadata}
        try:
            await send_request(self._client, "POST", _ALL, self._request_seconds, body=body)
        except RefusedError as error:
            if error.status != CONFLICT:  # the former leader has just created it
                raise _convert_absence(error) from error


def _convert_absence(error: RefusedError) -> Exception:
    """Return ServiceStatusNotInstalledError for a missing collection (404), else the error itself."""
    if error.status != NOT_FOUND:
        return error
    remedy = "kubectl apply -f manifests/base/05-servicestatus.yaml"
    return ServiceStatusNotInstalledError(f"{NAME} is not installed: {remedy}")


@asynccontextmanager
async def _convert_errors(what: str) -> AsyncIterator[None]:
    try:
        yield
    except ApiError as error:
        raise ServiceStatusError(
            f"{NAME}: cannot {what}: {error.describe(_RIGHT)}", error.retry_after_seconds
        ) from error
