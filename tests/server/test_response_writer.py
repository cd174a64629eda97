"""Responses of one turn of the loop: written together, in order, and never after anything that follows them."""

import asyncio
from itertools import pairwise

from tests.harness.loopback import loopback
from tests.timeouts import HANG_SECONDS
from webhook.server.connection import ResponseWriter
from webhook.server.http1 import HttpProtocols
from webhook.server.http_messages import HttpRequest, HttpResponse

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
TOGETHER = 16


class Client(asyncio.Transport):
    """The transport of a connection, which records the writes."""

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
    responses.busy = 3
    clients = [Client(written) for _ in range(3)]
    for client in clients:
        responses.add(client, b"first")
    responses.add(clients[0], b"second")
    assert not written
    await asyncio.sleep(0)
    assert written == [*((client, b"first") for client in clients), (clients[0], b"second")]


async def test_a_full_batch_is_written_at_once() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    responses.busy = TOGETHER + 2
    for _ in range(TOGETHER - 1):
        responses.add(Client(written), b"")
    assert not written
    responses.add(Client(written), b"")
    assert len(written) == TOGETHER
    responses.add(Client(written), b"")
    await asyncio.sleep(0)
    assert len(written) == TOGETHER + 1


async def test_a_response_waits_for_no_other_if_none_can_follow() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    one, other = Client(written), Client(written)
    responses.busy = 2
    responses.add(one, b"")
    responses.busy = 1
    responses.add(other, b"")
    assert [client for client, _ in written] == [one, other]


async def test_a_connection_is_busy_from_its_request_to_its_response() -> None:
    async def handle(request: HttpRequest) -> HttpResponse:
        busy.append(protocols._responses.busy)
        await asyncio.wait_for(go_on.wait(), HANG_SECONDS)
        return HttpResponse(200, b"ok", closes="Last" in request.headers)

    busy, go_on = list[int](), asyncio.Event()
    protocols = HttpProtocols(handle, 3600, lambda *_: None)
    server = await asyncio.get_running_loop().create_server(protocols, "127.0.0.1", 0)
    connections = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(4)]
    for number, (_, writer) in enumerate(connections[:3]):
        writer.write(POST + b"Last: 1\r\n" * (number == 1) + b"\r\n{}")
    connections[3][1].write(b"garbage\r\n\r\n")
    assert await connections[3][0].read()
    async with asyncio.timeout(HANG_SECONDS):
        while len(busy) < 3:  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.001)
    assert protocols._responses.busy == 3
    connections[2][1].transport.abort()
    go_on.set()
    assert await connections[0][0].readuntil(b"ok")
    assert await connections[1][0].read()
    async with asyncio.timeout(HANG_SECONDS):
        while protocols._responses.busy:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    server.close()
    await protocols.end(0)
    assert protocols._responses.busy == 0
    for _, writer in connections:
        writer.close()


async def test_a_client_that_has_gone_takes_nothing_from_the_others() -> None:
    responses, written = ResponseWriter(), list[tuple[Client, bytes]]()
    responses.busy = 2
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
