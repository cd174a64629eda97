"""Decision port of a server Pod through the WebSocket of an API server's port-forward."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes_asyncio.client import ApiClient, Configuration

from webhook.adapters.kubernetes import ClusterDecisionPort
from webhook.errors import UserError

PODS = "/api/v1/namespaces/podgate-system/pods"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
PORT = (8082).to_bytes(2, "little")

Stream = Callable[[web.WebSocketResponse, bytes], Awaitable[None]]


def pod(name: str, *, ready: bool = True) -> dict[str, object]:
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


async def answer_in_pieces(socket: web.WebSocketResponse, request: bytes) -> None:
    """Answer as a kubelet: the port on each channel, then the data."""
    assert request.startswith(b"\x00GET /api/v1/decisions HTTP/1.1\r\nHost: 127.0.0.1:8082\r\n")
    for channel in (b"\x00", b"\x01"):
        await socket.send_bytes(channel + PORT)
    for begin in range(0, len(ANSWER), 7):
        await socket.send_bytes(b"\x00" + ANSWER[begin : begin + 7])


async def refuse_port(socket: web.WebSocketResponse, _: bytes) -> None:
    """Answer that nothing listens at the port."""
    await socket.send_bytes(b"\x01" + PORT)
    await socket.send_bytes(b"\x01" + b"connection refused\n")


async def cut_answer(socket: web.WebSocketResponse, _: bytes) -> None:
    await socket.send_bytes(b"\x00" + PORT + ANSWER[:10])


@asynccontextmanager
async def cluster(stream: Stream, *pods: dict[str, object]) -> AsyncIterator[ClusterDecisionPort]:
    async def list_pods(request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "app.kubernetes.io/name=podgate"
        return web.json_response({"items": list(pods)})

    async def forward(request: web.Request) -> web.StreamResponse:
        if request.match_info["pod"] == "forbidden":
            return web.json_response({"message": "no"}, status=403)
        assert request.query["ports"] == "8082"
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        assert socket.ws_protocol == "v4.channel.k8s.io"
        await stream(socket, await socket.receive_bytes())
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get(PODS, list_pods)
    application.router.add_get(f"{PODS}/{{pod}}/portforward", forward)
    async with TestServer(application) as server:
        configuration = Configuration(host=f"http://127.0.0.1:{server.port}")
        async with ApiClient(configuration) as client:
            yield ClusterDecisionPort(client)


async def test_ready_pod_answers() -> None:
    async with cluster(answer_in_pieces, pod("starting", ready=False), pod("server")) as port:
        assert await port.get("/api/v1/decisions") == b"hello"


async def test_pods_are_tried_in_turn() -> None:
    async with cluster(answer_in_pieces, pod("forbidden"), pod("server")) as port:
        assert await port.get("/api/v1/decisions") == b"hello"


@pytest.mark.parametrize(
    ("stream", "name", "message"),
    [
        (refuse_port, "server", "port 8082: connection refused"),
        (cut_answer, "server", "closed before the response was complete"),
        (answer_in_pieces, "forbidden", "grant the right to create pods/portforward in podgate-system"),
    ],
)
async def test_failure_is_named(stream: Stream, name: str, message: str) -> None:
    async with cluster(stream, pod(name)) as port:
        with pytest.raises(UserError, match=message):
            await port.get("/api/v1/decisions")


async def test_cluster_without_a_ready_server_is_named() -> None:
    async with cluster(answer_in_pieces, pod("server", ready=False)) as port:
        with pytest.raises(UserError, match="no Pod is ready"):
            await port.get("/api/v1/decisions")
