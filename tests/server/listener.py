"""Helpers of the `listener` tests that other tests use, too."""

import asyncio
import ssl

from webhook.server.http_messages import HttpRequest, HttpResponse

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, b"hello")


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes = REQUEST) -> bytes:
    """Send one request; return the start of the answer, or nothing if the connection was cut."""
    try:
        writer.write(request)
        answer = await reader.read(1000)
        return answer if answer.endswith(b"hello") or not answer else answer + await reader.readexactly(5)
    except OSError:
        return b""


async def open_connection(
    port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)
