"""GET over HTTP from a port of a Pod, through the API server's port-forward: one WebSocket with two channels."""

import asyncio
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.config import ConfigException

from webhook.adapters.kubernetes.api.requests import GarbledError, RefusedError, UnreachedError, describe_proxy
from webhook.support.redaction import mask_credentials

# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/cri/streaming/portforward/websocket.go: each message
# begins with its channel, and the first of each channel is the port in two bytes.
_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_HEADER_END = b"\r\n\r\n"


async def get_forwarded(
    client: ApiClient, pod_path: str, port: int, path: str, timeout_seconds: float, bytes_max: int
) -> tuple[int, bytes]:
    """Return status and body. Raise ApiError if the Pod cannot be reached, or does not answer as HTTP."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(timeout_seconds):
            socket = await _connect(client, f"{pod_path}/portforward?ports={port}")
            try:
                await socket.send_bytes(bytes([_DATA]) + request)
                return await _read_response(socket, bytes_max)
            finally:
                await socket.close()
    except aiohttp.WSServerHandshakeError as error:
        raise RefusedError(error.status, mask_credentials(error.message)) from error
    except (aiohttp.ClientError, TimeoutError, OSError, ConfigException, ValueError) as error:
        said = mask_credentials(str(error)) or "no answer in time"
        raise UnreachedError(said + describe_proxy(client.configuration.proxy)) from error


async def _connect(client: Any, path: str) -> aiohttp.ClientWebSocketResponse:
    configuration, session = client.configuration, client.rest_client.pool_manager
    headers = {"User-Agent": client.user_agent}
    await client.update_params_for_auth(headers, [], ["BearerToken"])
    socket: aiohttp.ClientWebSocketResponse = await session.ws_connect(
        configuration.host + path,
        protocols=(_PROTOCOL,),
        headers=headers,
        proxy=configuration.proxy,
        server_hostname=configuration.tls_server_name,
        max_msg_size=0,
    )
    return socket


async def _read_response(socket: aiohttp.ClientWebSocketResponse, bytes_max: int) -> tuple[int, bytes]:
    received, is_first = bytearray(), {_DATA: True, _ERROR: True}
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if is_first.get(channel, False):
            is_first[channel] = False
            content = content[_PORT_BYTES:]
        if channel == _ERROR and content:
            raise UnreachedError(content.decode(errors="replace").strip())
        if channel == _DATA:
            received += content
            if len(received) > bytes_max:
                raise GarbledError(f"a body of more than {bytes_max} bytes")
            if (complete := _parse_response(bytes(received))) is not None:
                return complete
    raise UnreachedError("the connection was closed before the response was complete")


def _parse_response(received: bytes) -> tuple[int, bytes] | None:
    """Return status and body of a response with a Content-Length; None if more is to come."""
    head, end, body = received.partition(_HEADER_END)
    if not end:
        return None
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        status, length = int(status_line.split(" ")[1]), int(headers["content-length"])
    except (IndexError, ValueError, KeyError):
        raise GarbledError("the port answers, but not as Podgate does") from None
    return (status, body[:length]) if len(body) >= length else None
