"""Responses of one turn of the loop: written together, in order, and never after anything that follows them."""

import asyncio
from itertools import pairwise

from tests.harness.loopback import loopback
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.server.response_writer import ResponseWriter

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
TOGETHER = 16


class Client(asyncio.Transport):
    """The transport of a connection, which notes what is written."""

    def __init__(self, written: list[tuple["Client", bytes]]) -> None:
        super().__init__()
        self.written = written
        self.has_gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append((self, bytes(data)))

    def is_closing(self) -> bool:
        return self.has_gone


async def test_responses_of_a_turn_are_written_together_in_their_order() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    clients = [Client(written) for _ in range(3)]
    for client in clients:
        responses.add(client, b"first")
    responses.add(clients[0], b"second")
    assert not written
    await asyncio.sleep(0)
    assert written == [*((client, b"first") for client in clients), (clients[0], b"second")]


async def test_a_full_batch_is_written_at_once() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    for _ in range(TOGETHER - 1):
        responses.add(Client(written), b"")
    assert not written
    responses.add(Client(written), b"")
    assert len(written) == TOGETHER
    responses.add(Client(written), b"")
    await asyncio.sleep(0)
    assert len(written) == TOGETHER + 1


async def test_a_client_that_has_gone_takes_nothing_from_the_others() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    gone, other = Client(written), Client(written)
    responses.add(gone, b"")
    responses.add(other, b"")
    gone.has_gone = True
    await asyncio.sleep(0)
    assert [client for client, _ in written] == [other]


async def test_response_precedes_what_the_next_request_causes() -> None:
    async def handle(request: HttpRequest) -> HttpResponse:
        if "Expect" in request.headers:
            request.send_continue()
        await request.content.readany()
        return HttpResponse(200, b"ok", closes="Last" in request.headers)

    async with loopback(handle, context=None) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(POST + b"\r\n{}" + POST + b"Expect: 100-continue\r\n\r\n{}" + POST + b"Last: 1\r\n\r\n{}")
        received = await reader.read()
        writer.close()
    at = [received.find(text) for text in (b"HTTP/1.1 200", b"HTTP/1.1 100", b"close\r\n\r\nok")]
    assert min(at) >= 0
    assert all(one < other for one, other in pairwise(at))
    assert received.count(b"HTTP/1.1 200") == 3
