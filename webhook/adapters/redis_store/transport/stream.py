"""RespStream: commands to one Redis server and their answers or errors, in order, on one connection (RESP2).

Why it is not redis-py's: docs/design/redis-connections.md.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from hiredis import Reader, pack_command
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ExecAbortError,
    ExternalAuthProviderError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

_BY_CODE: dict[str, type[RedisError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "DENIED": AuthenticationError,
    "EXECABORT": ExecAbortError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
    "WRONGPASS": AuthenticationError,
}
_BY_TEXT: dict[str, type[RedisError]] = {
    "max number of clients reached": RedisConnectionError,
    "invalid password": AuthenticationError,
    "wrong number of arguments for 'auth' command": AuthenticationWrongNumberOfArgsError,
    "wrong number of arguments for 'AUTH' command": AuthenticationWrongNumberOfArgsError,
    "AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?": AuthenticationError,
    "Client sent AUTH, but no password is set": AuthenticationError,
    "problem with LDAP service": ExternalAuthProviderError,
}
"""Of replies with the code ERR."""


def make_error(reply: str) -> RedisError:
    """Return the exception of a reply such as `NOSCRIPT No matching script`; its text is without the code."""
    code, _, text = reply.partition(" ")
    if code == "ERR":
        return _BY_TEXT.get(text, ResponseError)(text, status_code=code)
    found = _BY_CODE.get(code)
    return ResponseError(reply) if found is None else found(text, status_code=code)


# Longer than any deadline of an admission: after a timeout the answer is still read. Short enough that a server that
# vanished without closing the connection is soon replaced.
_ANSWER_SECONDS = 5.0

Command = tuple[str | bytes | int, ...]


class RespStream(asyncio.Protocol):
    """An asyncio protocol.

    One alarm watches all commands: the stream fails if an answer takes too long. A failure ends all running calls.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(protocolError=InvalidResponse, replyError=make_error)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Any], int, float]] = deque()
        """Calls, each with the number of its commands and the time at which they were sent."""
        self._answers = 0
        """The number of answered commands of the first call."""
        self._alarm: asyncio.TimerHandle | None = None
        self._on_message: Callable[[Any], None] | None = None
        self.is_closed = False

    def ask(self, *commands: Command) -> "asyncio.Future[Any]":
        """Send commands together; the result is the raw answer to the last of them, or the first error."""
        answer = self._loop.create_future()
        if self.is_closed:
            answer.set_exception(RedisConnectionError("the connection was lost"))
            return answer
        now = self._loop.time()
        self._waiting.append((answer, len(commands), now))
        if self._alarm is None:  # not cancelled by an answer: the next call uses it again
            self._alarm = self._loop.call_at(now + _ANSWER_SECONDS, self._check_deadline)
        self.send(*commands)
        return answer

    def send(self, *commands: Command) -> None:
        """Send commands that are answered by messages."""
        if self._transport is not None and not self.is_closed:
            self._transport.write(b"".join(map(pack_command, commands)))  # type: ignore[arg-type]  # as if of one part

    def listen(self, on_message: Callable[[Any], None]) -> None:
        """Pass on a message that does not answer `ask`, and at the end the error of the connection."""
        self._on_message = on_message

    async def finish(self) -> None:
        """Close when the running calls have ended."""
        if self._waiting:
            await asyncio.wait([self._waiting[-1][0]])
        self.close()

    def close(self, error: Exception | None = None) -> None:
        """Close now. Running calls fail."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()  # TLS would wait for the server otherwise
        reason = error or RedisConnectionError("the connection was closed")
        for answer, _, _ in self._waiting:
            if not answer.done():
                answer.set_exception(reason)
        self._waiting.clear()
        if self._on_message is not None:
            self._on_message(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while not self.is_closed and (answer := self._reader.gets()) is not False:  # False: it is not complete yet
                self._receive(answer)
        except InvalidResponse as error:
            self.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(
            RedisConnectionError(f"the connection was lost: {exc}" if exc else "the server closed the connection")
        )

    def _receive(self, answer: Any) -> None:
        if self._waiting:
            call, count, _ = self._waiting[0]
            self._answers += 1
            if isinstance(answer, Exception) and not call.done():
                call.set_exception(answer)
            if self._answers == count:
                self._waiting.popleft()
                self._answers = 0
                if not call.done():
                    call.set_result(answer)
        elif self._on_message is not None:
            self._on_message(answer)
        else:
            raise InvalidResponse(f"an answer without a command: {answer!r:.100}")

    def _check_deadline(self) -> None:
        self._alarm = None
        if self._waiting:
            due = self._waiting[0][2] + _ANSWER_SECONDS
            if due <= self._loop.time():
                self.close(TimeoutError(f"no answer within {_ANSWER_SECONDS:g} s"))
            else:
                self._alarm = self._loop.call_at(due, self._check_deadline)
