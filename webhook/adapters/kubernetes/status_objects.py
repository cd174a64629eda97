"""Status objects, for `kubectl get`: ServiceStatuses, one for each service, and the one PolicyRollout."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, field

from webhook.adapters.kubernetes.api.objects import LABELS, Listed, ObjectVersion
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.unread_objects import decode_list
from webhook.errors import StatusError, StatusNotInstalledError

_VERSION = "podgate.io/v1alpha1"
_SELECTOR = f"app.kubernetes.io/managed-by={LABELS['app.kubernetes.io/managed-by']}"
_REQUEST_SECONDS = 5.0


class _Read(Struct, frozen=True):
    metadata: ObjectVersion
    status: dict[str, Any] = field(default_factory=dict)


class _StatusKind(NamedTuple):
    """A kind of status object, and the file with its definition."""

    kind: str
    plural: str
    definition: str

    @property
    def name(self) -> str:
        return f"{self.plural}.podgate.io"

    @property
    def path(self) -> str:
        return f"/apis/{_VERSION}/{self.plural}"


class StatusObjects:
    """A `ports.StatusClient` of one kind. Lists only objects with Podgate's label."""

    def __init__(self, client: ApiClient, kind: _StatusKind, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._kind = kind
        self._request_seconds = request_seconds

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        async with self._convert_errors("read"):
            try:
                body = await send_request(
                    self._client, "GET", self._kind.path, self._request_seconds, (("labelSelector", _SELECTOR),)
                )
            except RefusedError as error:
                raise self._convert_absence(error) from error
            listed, _ = decode_list(body, Listed[_Read], _Read)  # one that cannot be decoded is written anew
            return {found.metadata.name: found.status for found in listed.items or ()}

    async def write(self, name: str, status: Mapping[str, Any]) -> None:
        async with self._convert_errors(f"write {name}"):
            try:
                await self._replace(name, status)
            except RefusedError as error:
                if error.status != NOT_FOUND:
                    raise
                await self._create(name)
                await self._replace(name, status)

    async def delete(self, name: str) -> None:
        async with self._convert_errors(f"delete {name}"):
            try:
                await send_request(self._client, "DELETE", f"{self._kind.path}/{name}", self._request_seconds)
            except RefusedError as error:
                if error.status != NOT_FOUND:
                    raise

    async def _replace(self, name: str, status: Mapping[str, Any]) -> None:
        # Replaces the whole status: no former field remains.
        patch = [{"op": "add", "path": "/status", "value": status}]
        await send_request(self._client, "PATCH", f"{self._kind.path}/{name}/status", self._request_seconds, body=patch)

    async def _create(self, name: str) -> None:
        metadata = {"name": name, "labels": LABELS}
        body = {"apiVersion": _VERSION, "kind": self._kind.kind, "metadata": metadata}
        try:
            await send_request(self._client, "POST", self._kind.path, self._request_seconds, body=body)
        except RefusedError as error:
            if error.status != CONFLICT:  # the former leader has just created it
                raise self._convert_absence(error) from error

    def _convert_absence(self, error: RefusedError) -> Exception:
        """Return StatusNotInstalledError for a missing collection (404), else the error itself."""
        if error.status != NOT_FOUND:
            return error
        remedy = f"kubectl apply -f {self._kind.definition}"
        return StatusNotInstalledError(f"{self._kind.name} is not installed: {remedy}")

    @asynccontextmanager
    async def _convert_errors(self, what: str) -> AsyncIterator[None]:
        try:
            yield
        except ApiError as error:
            right = f"list, create and delete {self._kind.name}, and to patch their status"
            raise StatusError(
                f"{self._kind.name}: cannot {what}: {error.describe(right)}", error.retry_after_seconds
            ) from error


class ServiceStatuses(StatusObjects):
    """One object for each service, of its name."""

    def __init__(self, client: ApiClient) -> None:
        definition = "manifests/base/05-servicestatus.yaml"
        super().__init__(client, _StatusKind("ServiceStatus", "servicestatuses", definition))


class PolicyRollouts(StatusObjects):
    """The one object that shows the rollout of the policy."""

    def __init__(self, client: ApiClient) -> None:
        definition = "manifests/base/06-policyrollout.yaml"
        super().__init__(client, _StatusKind("PolicyRollout", "policyrollouts", definition))
