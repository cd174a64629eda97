"""API server client for single objects: get, create, replace and patch with optimistic locking."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import ConfigException

from certs.errors import CertsError

Json = dict[str, Any]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"

_TIMEOUT_SECONDS = 10.0
_CLOCKS_DIFFER_MAX = timedelta(minutes=5)
_NOT_FOUND, _CONFLICT, _FORBIDDEN = 404, 409, 403
_BY_NAME = "application/strategic-merge-patch+json"
_MESSAGE_CHARACTERS_MAX = 300
_GRANT = (
    "grant this account the right: kubectl apply -k manifests/certificates, "
    "for a server with --store=memory kubectl apply -k manifests/certificates-in-memory"
)
_GRANT_WEBHOOKS = (
    "grant this account the right: kubectl apply -f manifests/base/11-rbac-webhooks.yaml, for a controller also "
    "kubectl apply -f manifests/redis/12-rbac-webhooks.yaml"
)


class OvertakenError(CertsError):
    """Another writer changed the object first, or leads now: read the state again."""


class Api:
    """Sends one request at a time, and writes only while `may_write`."""

    def __init__(self, client: ApiClient, may_write: Callable[[], bool]) -> None:
        self._client = client
        self.may_write = may_write
        self._is_clock_right = True

    async def get(self, path: str) -> Json | None:
        """Return the object, None if there is none."""
        status, found = await self._ask("GET", path)
        return None if status == _NOT_FOUND else found

    async def create(self, folder: str, body: Json) -> None:
        await self._write("POST", folder, body)

    async def replace(self, path: str, body: Json) -> None:
        """Replace the object; OvertakenError if it has changed since it was read."""
        await self._write("PUT", path, body)

    async def patch(self, path: str, body: Json) -> None:
        """Apply a strategic merge patch; OvertakenError as above."""
        await self._write("PATCH", path, body)

    async def _write(self, method: str, path: str, body: Json) -> None:
        if not self.may_write():
            raise OvertakenError(f"{method} {path}: another process leads now", "none is needed: the leader does this")
        if not self._is_clock_right:
            raise CertsError(
                f"{method} {path}: not written: the clock here and the API server's differ by more than 5 minutes",
                "correct the wrong clock: a valid certificate may be taken for expired",
            )
        await self._ask(method, path, body)

    async def _ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        try:
            # aiohttp's own timeout would lose a cancellation that coincides with it.
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                # Not decoded by the client: it would log the body, which holds keys.
                response = await self._client.call_api(
                    path,
                    method,
                    header_params={
                        "Accept": "application/json",
                        "Content-Type": _BY_NAME if method == "PATCH" else "application/json",
                    },
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                )
                try:
                    found = json.loads(await response.read())
                finally:
                    response.close()
                self._is_clock_right = _is_now(response.headers.get("Date"))
        # ConfigException: from an exec plugin. ValueError, RecursionError: an invalid token or response.
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException, ValueError, RecursionError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)[:_MESSAGE_CHARACTERS_MAX]
            raise CertsError(f"{method} {path}: {reason}", "it will be retried") from None
        return response.status, _check_response(method, path, response.status, found)


def _is_now(date: str | None) -> bool:
    """Return whether a response's Date header agrees with the local clock, or is missing."""
    try:
        sent = parsedate_to_datetime(date) if date is not None else None
    except ValueError:
        return True
    return sent is None or sent.tzinfo is None or abs(datetime.now(UTC) - sent) <= _CLOCKS_DIFFER_MAX


def _check_response(method: str, path: str, status: int, found: Any) -> Json:
    if not isinstance(found, dict):
        raise CertsError(f"{method} {path}: HTTP {status}: no object", "it will be retried")
    if 200 <= status < 300 or (method == "GET" and status == _NOT_FOUND):  # noqa: PLR2004  HTTP success
        return found
    if status == _CONFLICT:
        raise OvertakenError(f"{method} {path}: changed by another writer", "it will be retried")
    message = str(found.get("message", ""))[:_MESSAGE_CHARACTERS_MAX]
    grant = _GRANT_WEBHOOKS if path.startswith(WEBHOOKS) else _GRANT
    raise CertsError(
        f"{method} {path}: HTTP {status}: {message}", grant if status == _FORBIDDEN else "it will be retried"
    )
