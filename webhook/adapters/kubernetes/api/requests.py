"""Requests to the API server, with bounded time and size, status checks and one exception type per failure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import aiohttp
import msgspec
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import ConfigException

from webhook.adapters.kubernetes.api.objects import ApiStatus
from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign
from webhook.support.http_timeout import build_socket_timeouts
from webhook.support.redaction import mask, mask_credentials

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, UNPROCESSABLE, TOO_MANY, INTERNAL = (
    401,
    403,
    404,
    409,
    410,
    422,
    429,
    500,
)
# Several times what is read at once, without pages: a longer body is not from an API server.
_BODY_BYTES_MAX = 512 << 20
_ERROR_BYTES_MAX = 64 << 10
_MESSAGE_CHARACTERS_MAX = 500
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept headers for objects whose content is not read: the response has metadata only, and is much shorter."""

BodyReader = Callable[[], Awaitable[bytes]]
"""Returns the next part of a body; b"" at its end."""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Timeouts of a request: in total, until it is connected, and without a byte from the server."""

    total_seconds: float
    connect_seconds: float | None = None
    silence_seconds: float | None = None


class ApiError(Exception):
    """The API server did not fulfil a request."""

    retry_after_seconds = 0.0
    status = 0
    """HTTP status of the response, 0 without one."""

    @property
    def is_absent(self) -> bool:
        """Whether the object does not exist. A caller without the right to read it gets `is_forbidden` instead."""
        return self.status == NOT_FOUND

    @property
    def is_forbidden(self) -> bool:
        """Whether the caller lacks the right, so that the object may exist or not."""
        return self.status == FORBIDDEN

    def describe(self, _right: str) -> str:
        """Describe the failure and, for a missing permission, its remedy; `right` is the permission required."""
        return str(self)


class UnreachedError(ApiError):
    """No complete response: connection refused or cut, timeout, certificate not trusted."""


class GarbledError(ApiError):
    """A response that cannot be decoded as the API server's."""


class LongBodyError(GarbledError):
    """A response that is longer than its reader accepts."""


class RefusedError(ApiError):
    """A response with a status other than 2xx."""

    def __init__(self, status: int, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(f"HTTP {status}: {message}" if message else f"HTTP {status}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    def describe(self, right: str) -> str:
        if self.is_forbidden:
            # A starting API server that has not read the roles yet also answers 403, except to administrators.
            return f"{self}: grant the right to {right}, unless the API server has only just started"
        if self.status == UNAUTHORIZED:
            return (
                f"{self}: the credentials are not accepted: check the service account's token or the kubeconfig's user"
            )
        return str(self)


@asynccontextmanager
async def open_request(
    client: ApiClient,
    method: str,
    path: str,
    timeouts: RequestTimeouts,
    query: Sequence[tuple[str, str]] = (),
    body: Any = None,
    *,
    accept: str = JSON,
) -> AsyncIterator[BodyReader]:
    """Yield a reader of the successful response's body. Raise ApiError otherwise, also when reading fails.

    An expired timeout interrupts the request or a read, never what the caller does between reads.
    """
    end_seconds = asyncio.get_running_loop().time() + timeouts.total_seconds
    try:
        async with asyncio.timeout_at(end_seconds):  # an exec plugin may hang too
            response = await _send(client, method, path, timeouts, query, body, accept)
        try:
            read = partial(_read_part, response, end_seconds)
            if not 200 <= response.status < 300:  # noqa: PLR2004  HTTP's success range
                raise await _read_refusal(response, read)
            yield read
        finally:
            response.close()  # keeps the connection if the body was read to its end
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        raise UnreachedError(_describe_error(error) + describe_proxy(client.configuration.proxy)) from error


async def send_request(
    client: ApiClient,
    method: str,
    path: str,
    timeout_seconds: float,
    query: Sequence[tuple[str, str]] = (),
    body: Any = None,
    *,
    accept: str = JSON,
) -> bytes:
    """Return the whole body of a successful response."""
    async with open_request(client, method, path, RequestTimeouts(timeout_seconds), query, body, accept=accept) as read:
        return await _read_body(read, _BODY_BYTES_MAX)


async def request_dated(client: ApiClient, path: str, timeout_seconds: float) -> tuple[bytes, str]:
    """Return the body at a path, and the Date header of the response, "" without one."""
    timeouts = RequestTimeouts(timeout_seconds)
    try:
        async with asyncio.timeout(timeout_seconds):
            response = await _send(client, "GET", path, timeouts, (), None, JSON)
            try:
                return await response.read(), response.headers.get("Date", "")
            finally:
                response.close()
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        raise UnreachedError(_describe_error(error) + describe_proxy(client.configuration.proxy)) from error


async def request_document(
    client: ApiClient,
    path: str,
    accept: str,
    timeout_seconds: float,
    bytes_max: int,
    query: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Return the body at a path, of at most `bytes_max` bytes. LongBodyError: it is longer."""
    async with open_request(client, "GET", path, RequestTimeouts(timeout_seconds), query, accept=accept) as read:
        return await _read_body(read, bytes_max)


async def _send(
    client: Any,
    method: str,
    path: str,
    timeouts: RequestTimeouts,
    query: Sequence[tuple[str, str]],
    body: Any,
    accept: str,
) -> aiohttp.ClientResponse:
    """Send the request over the client's session: the client would escape a body to up to three times its size."""
    configuration, session = client.configuration, client.rest_client.pool_manager
    headers = {"Accept": accept, "User-Agent": client.user_agent}
    if body is not None:
        headers["Content-Type"] = _choose_content_type(method, body)
    try:
        await client.update_params_for_auth(headers, [], ["BearerToken"])
        response: aiohttp.ClientResponse = await session.request(
            method,
            configuration.host + path,
            params=query,
            headers=headers,
            data=BytesIO(msgspec.json.encode(body)) if body is not None else None,
            timeout=build_socket_timeouts(timeouts.connect_seconds, timeouts.silence_seconds),
            allow_redirects=False,
            proxy=configuration.proxy,
            server_hostname=configuration.tls_server_name,
        )
    # ConfigException: from an exec plugin. ValueError: a token or an address that is invalid in a request.
    except (aiohttp.ClientError, TimeoutError, OSError, ConfigException, ValueError) as error:
        raise UnreachedError(_describe_error(error) + describe_proxy(client.configuration.proxy)) from error
    return response


def describe_proxy(proxy: str | None) -> str:
    """Return the text that names the proxy of a failed request: a library's error may name it as the server."""
    return f" (through the proxy {mask(proxy)})" if proxy else ""


def _choose_content_type(method: str, body: Any) -> str:
    """Return the type of a body: a PATCH with a list is a JSON Patch, with an object a server-side apply."""
    if method != "PATCH":
        return JSON
    return "application/json-patch+json" if isinstance(body, list) else "application/apply-patch+yaml"


async def _read_part(response: aiohttp.ClientResponse, end_seconds: float) -> bytes:
    async with asyncio.timeout_at(end_seconds):
        return await response.content.readany()


async def _read_refusal(response: aiohttp.ClientResponse, read: BodyReader) -> RefusedError:
    try:
        status = decode_foreign(await _read_body(read, _ERROR_BYTES_MAX), ApiStatus)
        message = status.message or status.reason
    except (GarbledError, *UNREADABLE_JSON):
        message = response.reason or ""  # such as a proxy's error page
    asked = response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    return RefusedError(response.status, message[:_MESSAGE_CHARACTERS_MAX], seconds)


async def _read_body(read: BodyReader, bytes_max: int) -> bytes:
    """Return the body; LongBodyError if it is longer than `bytes_max`."""
    body = BytesIO()  # one buffer, which becomes the result without a copy
    while chunk := await read():
        if body.tell() + len(chunk) > bytes_max:
            raise LongBodyError(f"a body of more than {bytes_max} bytes")
        body.write(chunk)
    return body.getvalue()


def _describe_error(error: BaseException) -> str:
    said = mask_credentials(str(error)) or type(error).__name__
    return "no answer in time" if isinstance(error, TimeoutError) else said[:_MESSAGE_CHARACTERS_MAX]
