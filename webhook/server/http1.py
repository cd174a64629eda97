"""HTTP/1.1 for both ports, on aiohttp's parser. Errors and logs reveal neither the software nor requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus

from aiohttp.http import HttpProcessingError, HttpRequestParser
from aiohttp.tcp_helpers import tcp_keepalive
from msgspec.structs import replace

from webhook.authentication.peer_recheck import Peer
from webhook.server.connection import ResponseWriter
from webhook.server.header_limits import BoundedHeaders, MalformedRequest
from webhook.server.http_messages import (
    NO_CONTENT,
    Body,
    BrokenBodyError,
    Handler,
    HttpResponse,
    RequestConnection,
    RequestHead,
    build_closing_response,
    encode_response,
)
from webhook.server.request_parser import Parsed, RequestParser
from webhook.support.call_thread import WaitingCaller, waiting_caller

OnRefused = Callable[[str, str], None]

# A token is at most 8 KiB; its header line has a name as well.
_HEADER_LINE_BYTES_MAX = 16 * 1024
_HEADERS_MAX = 64
_BODY_BUFFER_BYTES = 64 * 1024
"""Unread bytes of a body that are kept; twice as many pause reading."""
_PIPELINED_MAX = 32
"""Requests that wait behind the one being answered. More are not read until half of them are answered."""
_LINGERING_SECONDS = 1.0
"""Time to read and discard the rest of a body, so that its sender receives the response."""


class HttpProtocols:
    """Factory of a Listener's protocols. `on_refused` is called for malformed HTTP and for internal errors."""

    def __init__(self, handler: Handler, keep_alive_seconds: float, on_refused: OnRefused) -> None:
        self._handler = handler
        self._keep_alive_seconds = keep_alive_seconds
        self._on_refused = on_refused
        self._open: set[HttpConnection] = set()
        self._responses = ResponseWriter()

    def __call__(self) -> asyncio.Protocol:
        return HttpConnection(self._handler, self._keep_alive_seconds, self._on_refused, self._open, self._responses)

    async def end(self, seconds: float) -> None:
        """End every connection: idle ones at once, the others after their response, or after `seconds`."""
        answering = [task for connection in tuple(self._open) if (task := connection.end()) is not None]
        if answering:
            _, late = await asyncio.wait(answering, timeout=seconds)
            for task in late:
                task.cancel()


class HttpConnection(RequestConnection):
    """One connection. Its task takes one request after another: parsed, handled, answered in one write."""

    __slots__ = (
        "_caller",
        "_content",
        "_handler",
        "_idle_timer",
        "_idle_until_seconds",
        "_is_ending",
        "_keep_alive_seconds",
        "_next_request",
        "_on_refused",
        "_open",
        "_requests",
        "_responses",
        "_serving",
    )

    def __init__(
        self,
        handler: Handler,
        keep_alive_seconds: float,
        on_refused: OnRefused,
        connections: set["HttpConnection"],
        responses: ResponseWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(
            self,
            loop,
            _BODY_BUFFER_BYTES,
            max_field_size=_HEADER_LINE_BYTES_MAX,
            max_headers=_HEADERS_MAX,
            payload_exception=BrokenBodyError,
            auto_decompress=False,
            max_msg_queue_size=_PIPELINED_MAX,
        )
        requests = RequestParser(self, BoundedHeaders(parser), _BODY_BUFFER_BYTES)
        super().__init__(loop, requests)
        self._handler = handler
        self._keep_alive_seconds = keep_alive_seconds
        self._on_refused = on_refused
        self._open = connections
        self._responses = responses
        self._requests: deque[Parsed] = deque()
        self._next_request: asyncio.Future[None] | None = None
        """Waited for while the connection is idle."""
        self._content: Body = NO_CONTENT
        """Body of the request being answered."""
        self._is_ending = False
        self._caller = WaitingCaller()
        self._serving: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_until_seconds = 0.0

    # Methods of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None  # noqa: S101  aiohttp has just set it
        tcp_keepalive(self.transport)
        tls = self.transport.get_extra_info("ssl_object")
        self.peer = None if tls is None else Peer(tls)
        self._open.add(self)
        self._responses.busy += 1
        self._serving = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._is_ending or self._upgraded:
            return
        known = self._parser.recognize(data)  # type: ignore[union-attr]  # a RequestParser until it is lost
        if known is not None:
            self._requests.append(known)
        elif not self._parse(data):
            return
        if len(self._requests) >= _PIPELINED_MAX and not self._buffer_paused:
            self._pause_reading_for_buffer()
        self._wake()

    def _parse(self, data: bytes) -> bool:
        """Add the requests whose header `data` completes; return whether there are any."""
        try:
            found, self._upgraded = self._parser.feed_data(data)  # type: ignore[union-attr,misc]  # as above
        except HttpProcessingError as error:
            found = (MalformedRequest(type(error).__name__),)
        self._requests.extend(found)
        return bool(found)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002  aiohttp's signature
        if self._reading_paused:  # the body of every request calls this, mostly without need
            super().resume_reading(resume_parser)

    def eof_received(self) -> None:
        """Close: a client that sends no more does not wait for a response."""

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.discard(self)
        self._is_ending = True
        self._caller.leave()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._content.is_eof():
            self._content.set_exception(ConnectionResetError("the client has closed the connection"))
        self._wake()
        super().connection_lost(exc)
        self._parser = None  # it refers to this object

    def end(self) -> "asyncio.Task[None] | None":
        """Close the connection after the response that is under way; return its task if there is one."""
        self._is_ending = True
        self._wake()
        return self._serving

    # The task of the connection.

    async def _serve(self) -> None:
        waiting_caller.set(self._caller)
        try:
            await self._answer_requests()
        except ConnectionError:
            pass  # the client has gone before its response
        finally:
            self._is_ending = True
            self._responses.busy -= 1
            self._responses.flush()
            if self.transport is not None:
                self.transport.close()

    async def _answer_requests(self) -> None:
        """Answer one request after another, until the client or a response ends the connection."""
        requests, stays = self._requests, True
        while stays and not self._is_ending:
            if not requests:
                await self._begin_idle()
                continue
            request = requests.popleft()
            if self._paused or self._buffer_paused:
                await self._catch_up()
            if isinstance(request, MalformedRequest):
                return self._refuse(request)
            if request.body is None:
                self._parser.message_consumed()  # type: ignore[union-attr]  # the connection is open
                self._content = request.content
            try:
                response = await self._handler(request)
            except Exception as error:  # noqa: BLE001  a defect must cost one call, never the process
                response = self._build_internal_error(error)
            stays = self._respond(request.head, response)
            if request.body is None:
                stays = await self._discard(request.content) and stays
            if requests:
                self._responses.flush()  # the next handler may write 100 Continue
        return None

    async def _catch_up(self) -> None:
        """Wait until the client has read its responses, and read on if enough pipelined requests are answered."""
        if self._paused:
            await self._drain_helper()
        if self._buffer_paused:
            self._read_on()

    def _refuse(self, malformed: MalformedRequest) -> None:
        self._on_refused("bad_request", malformed.detail)
        # Its version is unknown: the lowest one is understood by every client.
        self._write(encode_response(build_closing_response(malformed.status), "HTTP/1.0"))

    def _build_internal_error(self, error: Exception) -> HttpResponse:
        self._on_refused("internal_error", type(error).__name__)
        return build_closing_response(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _respond(self, head: RequestHead, response: HttpResponse) -> bool:
        """Write a response; return whether the connection stays open."""
        stays = head.keep_alive and not (response.closes or self._is_ending or self._upgraded)
        if not stays and not response.closes:
            response = replace(response, closes=True)
        encoded = encode_response(response)
        if head.method == "HEAD":
            encoded = encoded[: len(encoded) - len(response.body)]
        self._write(encoded)
        return stays

    async def _discard(self, content: Body) -> bool:
        """Read the rest of a body for at most `_LINGERING_SECONDS`; return whether its end was reached."""
        if content.is_eof():
            return True
        try:
            async with asyncio.timeout(_LINGERING_SECONDS):
                while not content.is_eof():
                    await content.readany()
        except (TimeoutError, BrokenBodyError):
            return False
        return True

    def _write(self, data: bytes) -> None:
        if self.transport is None:
            raise ConnectionResetError("the client has closed the connection")
        self._responses.add(self.transport, data)

    def _read_on(self) -> None:
        if len(self._requests) <= _PIPELINED_MAX // 2:
            self.data_received(b"")  # the parser has kept what it did not parse
            if len(self._requests) < _PIPELINED_MAX:
                self._resume_reading_for_buffer()

    def _wake(self) -> None:
        waiting, self._next_request = self._next_request, None
        if waiting is not None and not waiting.done():  # done: the task was cancelled
            waiting.set_result(None)
            self._responses.busy += 1

    def _begin_idle(self) -> "asyncio.Future[None]":
        """Return a future that ends when the next request arrives, or when the idle connection is closed.

        The timer is reused: requests only move its deadline.
        """
        self._idle_until_seconds = self._loop.time() + self._keep_alive_seconds
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_at(self._idle_until_seconds, self._end_if_idle)
        self._responses.busy -= 1
        self._next_request = self._loop.create_future()
        return self._next_request

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._next_request is None:
            return
        if self._loop.time() < self._idle_until_seconds:
            self._idle_timer = self._loop.call_at(self._idle_until_seconds, self._end_if_idle)
        else:
            self.end()
