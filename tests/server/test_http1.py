"""A connection that has ended leaves nothing in memory."""

import asyncio
import gc
from http import HTTPStatus

import pytest
from aiohttp.http_exceptions import HttpProcessingError

from tests.harness.loopback import loopback
from webhook.server.http1 import HttpConnection, HttpProtocols
from webhook.server.http_messages import HttpRequest, HttpResponse, build_closing_response

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


async def test_invalid_http_is_discarded_once_answered() -> None:
    async def hello(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"hello")

    refused: list[str] = []
    protocols = HttpProtocols(hello, 60, lambda reason, _: refused.append(reason))
    server = await asyncio.get_running_loop().create_server(protocols, "127.0.0.1", 0)
    gc.collect()
    gc.disable()  # reference counting alone should free the exception
    try:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"\x01" * 1000)
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        writer.close()
        assert refused == ["bad_request"]
        assert not [item for item in gc.get_objects() if isinstance(item, HttpProcessingError)]
    finally:
        gc.enable()
        server.close()
        await protocols.end(0)


def count_held() -> int:
    """Return how many connections are in memory."""
    gc.collect()
    return sum(isinstance(item, HttpConnection) for item in gc.get_objects())


@pytest.mark.parametrize("sent", [POST % 0 * 3, POST % 9], ids=["requests without an answer", "a body cut off"])
async def test_client_that_has_gone_is_forgotten_with_all_that_it_sent(sent: bytes) -> None:
    async def refuse(_request: HttpRequest) -> HttpResponse:
        return build_closing_response(HTTPStatus.UNAUTHORIZED)

    async with loopback(refuse, None) as running:
        before = count_held()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()
        await running.wait_until(lambda: count_held() <= before)
