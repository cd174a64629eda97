"""AnnouncementListener: subscription to the breaker transitions that the script publishes, on its own connection.

Redis delivers an announcement only to connected clients; the tick of each second finds transitions that were missed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import RedisError

from webhook.adapters.redis_store import codec, error_classes
from webhook.adapters.redis_store.transport.connect import Dial
from webhook.adapters.redis_store.transport.records import AnnouncementMessage
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.core.breaker import BreakerView
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.errors import StoreFailure, StoreFault
from webhook.ports import StoreReports
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

_FIRST_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0
_SILENT_SECONDS = 2.0
"""After this long without a message, one is requested from the server: a connection can fail unnoticed."""
_MESSAGE, _CONFIRMED = b"message", b"subscribe"
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, list[Any]]).decode


class Announcement(NamedTuple):
    """A breaker as it was at the store's time `at_us`; `key` is its plan's."""

    key: tuple[str, str]
    view: BreakerView
    at_us: int


class AnnouncementListener:
    """Subscribes to one channel while `follow` runs; `learn` receives the fields of each announcement.

    It reports two conditions: a failed connection, and an announcement that cannot be read (`StoreFault.SCRIPT`).
    """

    def __init__(
        self,
        dial: Dial,
        channel: str,
        learn: Callable[[tuple[str, str], BreakerView, int], None],
        reports: StoreReports,
    ) -> None:
        self._dial = dial
        self._subscribe = "SUBSCRIBE", channel
        self._learn = learn
        self._disconnected = Condition(reports.on_trouble, reports.on_over, key=error_classes.fault_of)
        self._unreadable = Condition(reports.on_trouble, reports.on_over, key=error_classes.fault_of)
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX)
        self._must_reconnect = False

    async def follow(self) -> None:
        """Listen until cancelled; reconnect after each failure."""
        while True:
            try:
                await self._listen(await self._dial())
            except (RedisError, OSError, TimeoutError) as error:
                self._disconnected.enter(error_classes.described(error))
            await asyncio.sleep(self._backoff.next_seconds())

    def reconnect(self) -> None:
        """Listen on a new connection soon: another server may publish now."""
        self._must_reconnect = True

    async def _listen(self, stream: RespStream) -> None:
        """Read messages until the connection fails or `reconnect` is called."""
        self._must_reconnect, is_asked = False, False
        messages: asyncio.Queue[Any] = asyncio.Queue()
        stream.listen(messages.put_nowait)
        try:
            stream.send(self._subscribe)
            while not self._must_reconnect:
                try:
                    async with asyncio.timeout(_SILENT_SECONDS):
                        message = await messages.get()
                except TimeoutError:
                    if is_asked:
                        raise TimeoutError(f"no message for {2 * _SILENT_SECONDS:g} s") from None
                    # Subscribing again changes nothing; any other command would need a permission of its own.
                    stream.send(self._subscribe)
                    is_asked = True
                else:
                    if isinstance(message, Exception):
                        raise message
                    is_asked = False
                    self._receive(message)
        finally:
            stream.close()

    def _receive(self, message: Any) -> None:
        kind, _, content = message
        if kind == _CONFIRMED:
            self._backoff.reset()
            self._disconnected.leave()
        elif kind == _MESSAGE:
            try:
                announcement = read(content)
            except (ValueError, TypeError, KeyError, *UNREADABLE_JSON) as error:
                text = f"an announcement cannot be read: {error!r}"
                self._unreadable.enter(StoreFailure(text, StoreFault.SCRIPT))
            else:
                self._unreadable.leave()
                self._learn(*announcement)


def read(content: bytes) -> Announcement:
    """Decode an announcement; raises one of the errors that `_receive` catches if it is malformed."""
    message = AnnouncementMessage(*_decode(content))
    view = codec.decode_view(message.view)
    if view is None:
        raise ValueError("it has no breaker")
    announced = msgspec.convert(msgspec.structs.asdict(view), BreakerView)
    return Announcement((message.tag, message.service), announced, message.at_us)
