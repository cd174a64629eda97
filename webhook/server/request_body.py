"""BodyReader: reads request bodies, with limits on size, time, and the memory of all incomplete bodies together."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import HttpVersion11, hdrs

from webhook.authentication.identities import Role
from webhook.errors import CallRefusedError
from webhook.server.http_messages import JSON, BrokenBodyError, Headers, HttpRequest

_HELD_BYTES_MAX = 64 * 1024 * 1024
"""Incomplete bodies. An API server sends a body in milliseconds: only deliberately slow clients reach this."""


@dataclass(eq=False, slots=True)
class _Arrival:
    """An incomplete body, and its timeout."""

    role: Role
    patience: asyncio.Timeout
    held_bytes: int = 0
    is_displaced: bool = False


class BodyReader:
    """Reads bodies. When the memory limit is reached, the body that has been arriving longest is displaced."""

    def __init__(self, max_bytes: int, timeout_seconds: float) -> None:
        self.bytes_max = max_bytes
        self._timeout_seconds = timeout_seconds
        self._arriving: dict[_Arrival, None] = {}
        self._held_bytes = 0

    def check(self, request: HttpRequest) -> None:
        """Check a header, and ask a caller that waits for it to send the body; CallRefusedError if not acceptable."""
        if not _is_plain_json(request.headers):
            text = "send application/json, not encoded"
            raise CallRefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", text)
        self._check_size(request.content_length or 0)
        if expects_continue(request):
            _send_continue(request)

    def take_arrived(self, request: HttpRequest) -> bytes | None:
        """Return the body if the whole of it has arrived, as is usual; CallRefusedError if it is too large."""
        body = request.body
        if body is None:
            self._check_size(request.content_length or 0)
            if not request.content.is_eof():
                return None
            body = request.content.read_nowait()
        if len(body) > self.bytes_max:
            raise self._build_too_large_error()
        return body

    def displace(self, role: Role | None = None) -> bool:
        """End the call (of a role) whose body has been arriving longest; False if no body is incomplete."""
        oldest = next((arrival for arrival in self._arriving if role in {None, arrival.role}), None)
        if oldest is None:
            return False
        if not oldest.patience.expired():  # otherwise it is already ending
            oldest.is_displaced = True
            oldest.patience.reschedule(0)
        self._release(oldest)
        return True

    async def receive(self, request: HttpRequest, role: Role) -> bytes:
        """Wait for the rest of a body, and return the whole; CallRefusedError if that is not possible."""
        body = bytearray()
        patience = asyncio.timeout(self._timeout_seconds)
        arrival = _Arrival(role, patience)
        try:
            async with patience:
                self._arriving[arrival] = None
                while part := await request.content.readany():
                    body += part
                    if len(body) > self.bytes_max:
                        raise self._build_too_large_error()
                    self._hold(arrival, len(part))
        except TimeoutError:
            raise self._build_late_error(arrival) from None
        except (ConnectionError, BrokenBodyError) as error:
            name = type(error).__name__  # the message may quote the body
            raise CallRefusedError(HTTPStatus.BAD_REQUEST, "body_broken", "the body ended early", name) from None
        finally:
            self._release(arrival)
        return bytes(body)

    def _hold(self, arrival: _Arrival, more_bytes: int) -> None:
        if arrival in self._arriving:
            arrival.held_bytes += more_bytes
            self._held_bytes += more_bytes
            while self._held_bytes > max(_HELD_BYTES_MAX, 2 * self.bytes_max) and self.displace():
                pass

    def _release(self, arrival: _Arrival) -> None:
        if arrival in self._arriving:
            del self._arriving[arrival]
            self._held_bytes -= arrival.held_bytes

    def _build_late_error(self, arrival: _Arrival) -> CallRefusedError:
        if arrival.is_displaced:
            text = "too many bodies arrive, and this one was the slowest"
            return CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "body_displaced", text)
        text = f"the body took longer than {self._timeout_seconds:g}s"
        return CallRefusedError(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", text)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.bytes_max:
            raise self._build_too_large_error()

    def _build_too_large_error(self) -> CallRefusedError:
        text = f"the body is larger than {self.bytes_max} bytes"
        return CallRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", text)


def expects_continue(request: HttpRequest) -> bool:
    """Return whether a caller waits for an answer to its header before it sends the body."""
    return hdrs.EXPECT in request.headers


def _is_plain_json(headers: Headers) -> bool:
    if hdrs.CONTENT_ENCODING in headers:
        return False
    content_type = headers.get(hdrs.CONTENT_TYPE, "")
    return content_type == JSON or content_type.partition(";")[0].strip().lower() == JSON


def _send_continue(request: HttpRequest) -> None:
    """Send 100 Continue to a caller that expects it; it has been authenticated by now."""
    if request.head.version < HttpVersion11:
        return
    if request.headers[hdrs.EXPECT].lower() != "100-continue":
        raise CallRefusedError(HTTPStatus.EXPECTATION_FAILED, "expectation", "")
    request.send_continue()
