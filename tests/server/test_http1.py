"""A failed connection leaves no exception in memory."""

import asyncio
import gc

from aiohttp.http_exceptions import HttpProcessingError

from webhook.server.http1 import HttpProtocols
from webhook.server.http_messages import HttpRequest, HttpResponse


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
