"""What became of breakers elsewhere, as the script publishes it: one more connection, on which nothing else is asked.

An announcement reaches whoever listens at that moment, and nobody else: the poll of each second stands behind it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from webhook.adapters.redis_store import codec, error_classes
from webhook.adapters.redis_store.transport.connect import Dial
from webhook.core.breaker import BreakerView
from webhook.ports import WatchReports

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_SILENT_SECONDS = 2.0
"""After so long without a word the server is asked whether it is there: a connection can die unseen."""
_MESSAGE, _CONFIRMED = b"message", b"subscribe"
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, list[Any]]).decode
_FIELDS = len(BreakerView.__struct_fields__)


class Announcement(NamedTuple):
    """A breaker as it was at the store's time `at_us`; `key` is its plan's."""

    key: tuple[str, str]
    at_us: int
    view: BreakerView


class AnnouncementListener:
    """Listens on one channel while `follow` runs; `learn` is told of each announcement.

    Two troubles are told, each once until it is over: that nobody listens, and an announcement that says nothing to us
    (`script: ...`).
    """

    def __init__(self, dial: Dial, channel: str, learn: Callable[[Announcement], None], reports: WatchReports) -> None:
        self._dial = dial
        self._subscribe = pack_command(("SUBSCRIBE", channel))  # type: ignore[arg-type]  # typed as if it had one part
        self._learn = learn
        self._reports = reports
        self._deaf = self._puzzled = ""
        """What was told last of either trouble; "" where it is over."""
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._is_elsewhere = False

    async def follow(self) -> None:
        """Listen until cancelled, on a new connection after each that fails."""
        while True:
            try:
                await self._listen(await self._dial())
            except (RedisError, OSError, TimeoutError) as error:
                self._deaf = self._told(self._deaf, error_classes.described(error))
            await asyncio.sleep(self._pause_seconds * random.uniform(0.5, 1))  # noqa: S311  it guards nothing
            self._pause_seconds = min(self._pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    def look_again(self) -> None:
        """Listen on a new connection soon: another server may be the one that publishes now."""
        self._is_elsewhere = True

    async def _listen(self, connection: AbstractConnection) -> None:
        """Take in what comes until the connection fails, or another one is wanted."""
        self._is_elsewhere, is_asked = False, False
        try:
            await connection.send_packed_command(self._subscribe)
            while not self._is_elsewhere:
                said = await connection.read_response(timeout=_SILENT_SECONDS)
                if said is not None:
                    is_asked = False
                    self._heard(said)
                elif is_asked:
                    raise TimeoutError(f"no word for {2 * _SILENT_SECONDS:g} s")
                else:  # to subscribe again changes nothing, and to ask anything else would need a right of its own
                    await connection.send_packed_command(self._subscribe)
                    is_asked = True
        finally:
            await connection.disconnect(nowait=True)

    def _heard(self, said: Any) -> None:
        kind, _, content = said
        if kind == _CONFIRMED:
            self._pause_seconds = _FIRST_PAUSE_SECONDS
            self._deaf = self._over(self._deaf)
        elif kind == _MESSAGE:
            try:
                announcement = read(content)
            except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
                self._puzzled = self._told(
                    self._puzzled, f"{error_classes.SCRIPT}: an announcement cannot be read: {error!r}"
                )
            else:
                self._puzzled = self._over(self._puzzled)
                self._learn(announcement)

    def _told(self, before: str, reason: str) -> str:
        if error_classes.word(before) == error_classes.word(reason):
            return before
        self._over(before)
        self._reports.on_trouble(reason)
        return reason

    def _over(self, trouble: str) -> str:
        if trouble:
            self._reports.on_over(trouble)
        return ""


def read(content: bytes) -> Announcement:
    """Return what the script published; one of the errors of `_heard` where it is not the script's."""
    tag, service, at_us, packed = _decode(content)
    view = codec.breaker_view(packed[:_FIELDS])  # that of a newer version may say more
    if view is None:
        raise ValueError("it says nothing of a breaker")
    return Announcement((tag, service), at_us, msgspec.convert(msgspec.structs.asdict(view), BreakerView))
