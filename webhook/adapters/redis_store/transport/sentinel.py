"""SentinelTransport: the primary that the Sentinels of a group name, looked up for each connection and at each tick.

redis-py's Sentinel class reads passwords and certificates only once; Podgate's rotate.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from webhook.adapters.redis_store.transport.connect import dial_server, drop_unless_done, join_errors
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.credentials import CredentialSource
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.server import ServerTransport, find_info_entry
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.ports.store_url import RedisAddress, StoreUrl

_SENTINEL_SECONDS = 1.0


class Sentinels:
    """The Sentinels of one group. The one that answered last is asked first."""

    def __init__(self, url: StoreUrl, access: CredentialSource) -> None:
        self._service = url.service
        self._database = url.database
        self._access = access
        self._connections = {
            address: SharedConnection(partial(self._dial_sentinel, address)) for address in url.addresses
        }
        self._order = list(url.addresses)
        self.dialled: RedisAddress | None = None
        """The primary of the connection that takes calls."""
        self._apart: WeakKeyDictionary[RespStream, RedisAddress] = WeakKeyDictionary()
        """The other connections for calls that are in use, and the primary of each."""

    async def dial(self) -> RespStream:
        """Return a connection to the current primary, for calls."""
        self.dialled = await self.find_primary()
        return await self._connect(self.dialled)

    async def dial_apart(self) -> RespStream:
        """Return another connection to the current primary."""
        return await self._connect(await self.find_primary())

    async def dial_for_calls(self) -> RespStream:
        """Return another connection to the current primary, which `drop_apart` closes when it is replaced."""
        primary = await self.find_primary()
        stream = await self._connect(primary)
        self._apart[stream] = primary
        return stream

    def drop_apart(self, primary: RedisAddress) -> None:
        """Disconnect the other connections from any former primary: it may accept writes for seconds."""
        for stream, address in [*self._apart.items()]:
            if address != primary:
                stream.close()

    async def _connect(self, address: RedisAddress) -> RespStream:
        connection = await dial_server(
            address, await self._access.credentials(), await self._access.tls(), self._database
        )
        async with drop_unless_done(connection):
            await _check(address, connection)
        return connection

    async def find_primary(self) -> RedisAddress:
        """Return the primary that the first answering Sentinel names; RedisError if none does."""
        errors: list[Exception] = []
        for sentinel in tuple(self._order):
            self._put(sentinel, len(self._order))  # last, unless it answers: its caller may time out first
            try:
                answer = await self._ask(sentinel)
            except (RedisError, OSError, TimeoutError) as error:
                errors.append(error)
                continue
            if answer is None:
                errors.append(RedisConnectionError(f"{sentinel} knows no {self._service!r}"))
                continue
            self._put(sentinel, 0)
            host, port = answer
            return RedisAddress(host.decode(), int(port))
        raise join_errors(f"no Sentinel names the primary of {self._service!r}", errors)

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    async def _ask(self, sentinel: RedisAddress) -> tuple[bytes, bytes] | None:
        asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        try:
            async with asyncio.timeout(_SENTINEL_SECONDS):
                answer: tuple[bytes, bytes] | None = await self._connections[sentinel].ask(asked)
        except TimeoutError:
            raise TimeoutError(f"{sentinel}: no answer within {_SENTINEL_SECONDS:g} s") from None
        return answer

    def _put(self, sentinel: RedisAddress, place: int) -> None:
        self._order.remove(sentinel)
        self._order.insert(place, sentinel)

    async def _dial_sentinel(self, address: RedisAddress) -> RespStream:
        return await dial_server(address, await self._access.sentinel_credentials(), await self._access.tls())


class SentinelTransport(ServerTransport):
    """The primary of a group. A former primary that still accepts writes is dropped within a tick."""

    def __init__(self, sentinels: Sentinels, script: Script) -> None:
        super().__init__(sentinels.dial, script, sentinels.dial_apart)
        self._sentinels = sentinels

    async def dial(self, key: str = "") -> RespStream:
        if not key:  # a subscription, which reconnects by itself
            return await super().dial()
        return await self._sentinels.dial_for_calls()

    async def ask_histories(self) -> Mapping[str, str]:
        with suppress(RedisError, OSError, TimeoutError):  # without Sentinels the primary still serves
            async with asyncio.timeout(_SENTINEL_SECONDS):
                primary = await self._sentinels.find_primary()
                self._sentinels.drop_apart(primary)
                if primary != self._sentinels.dialled:
                    await self._connection.drop()
        return await super().ask_histories()

    async def close(self) -> None:
        await super().close()
        await self._sentinels.close()


async def _check(address: RedisAddress, connection: RespStream) -> None:
    """Raise unless the server is a primary: Sentinels may name a former one, or one that is not promoted yet."""
    role = find_info_entry(await connection.ask(("INFO", "replication")), "role")
    if role != "master":
        raise RedisConnectionError(f"{address}: Sentinels name it as the primary, but its role is {role}")
