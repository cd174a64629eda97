"""Port-forwarding endpoint of a kubelet, for a Pod whose process runs on this machine: WebSocket v4.channel.k8s.io."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from tests.cluster.background_loop import BackgroundLoop

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\x00", b"\x01"
_CHUNK_BYTES = 1 << 16


@contextmanager
def kubelet_ports(certificate: Path, key: Path, ports: dict[tuple[str, int], str]) -> Iterator[int]:
    """Forward the `ports` of Pods, by name, to HOST:PORT of this machine; yield the kubelet's own port."""

    async def forward(request: web.Request) -> web.WebSocketResponse:
        port = int(request.query["port"])
        socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
        await socket.prepare(request)
        for channel in (_DATA, _ERROR):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        host, _, number = ports[request.match_info["pod"], port].rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(number))
        except OSError as error:
            await socket.send_bytes(_ERROR + f"error forwarding port {port}: {error.strerror}".encode())
            await socket.close()
            return socket
        answering = asyncio.create_task(_answer(reader, socket))
        async for message in socket:
            assert message.data[:1] == _DATA
            writer.write(message.data[1:])
        writer.close()
        await answering
        return socket

    async def start() -> tuple[web.AppRunner, int]:
        application = web.Application()
        application.router.add_get("/portForward/{namespace}/{pod}", forward)
        runner = web.AppRunner(application)
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        return runner, runner.addresses[0][1]

    loop = BackgroundLoop("kubelet-ports")
    runner, number = loop.run(start())
    try:
        yield number
    finally:
        loop.run(runner.cleanup())
        loop.close()


async def _answer(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        await socket.send_bytes(_DATA + chunk)
    await socket.close()
