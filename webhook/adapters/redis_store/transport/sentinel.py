"""SentinelTransport: the primary that the Sentinels of a group name, looked up for each connection and at each tick.

redis-py's Sentinel class believes the first one that answers, and reads passwords and certificates only once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from webhook.adapters.redis_store.transport.connect import Dial, dial_server, drop_unless_done, join_errors
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.credentials import CredentialSource
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.server import ServerTransport, find_info_entry
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.ports.store_url import RedisAddress, StoreUrl

_SENTINEL_SECONDS = 1.0
_SILENT_SECONDS = 0.1
"""How long one that did not answer the last time is waited for: our own pause, too, makes all of them seem silent."""
_EPOCH_PAUSE_SECONDS = 60.0
"""After a Sentinel has refused to tell its epoch: the refusal closes the connection."""


class _Configuration(NamedTuple):
    """What a Sentinel knows. A failover makes a new epoch, which is higher; 0 if the Sentinel does not tell it."""

    epoch: int
    primary: RedisAddress


class _Sentinel:
    """One Sentinel, which one task at a time asks."""

    def __init__(self, address: RedisAddress, service: str, dial: Dial) -> None:
        self._address = address
        self._service = service
        self._connection = SharedConnection(dial)
        self._asking: asyncio.Task[_Configuration | Exception] | None = None
        self._epoch_from = 0.0
        """When to ask for the epoch again, by the loop's clock."""
        self.is_silent = False
        """Whether it did not answer the last time."""

    def ask(self) -> "asyncio.Task[_Configuration | Exception]":
        """Return the task that asks; it goes on when nobody waits for it, and returns its error."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="sentinel")
        return self._asking

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self._connection.close()

    async def _ask(self) -> _Configuration | Exception:
        try:
            async with asyncio.timeout(_SENTINEL_SECONDS):
                found = await self._ask_configuration()
        except TimeoutError:
            error: Exception = TimeoutError(f"{self._address}: no answer within {_SENTINEL_SECONDS:g} s")
        except (RedisError, OSError) as failed:
            error = failed
        else:
            self.is_silent = False
            return found
        self.is_silent = True
        return error

    async def _ask_configuration(self) -> _Configuration:
        epoch = await self._ask_epoch()  # first: the address is then not older
        # SENTINEL MASTER names the former primary until all replicas follow the new one.
        answer = await self._connection.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        if answer is None:
            raise RedisConnectionError(f"{self._address} knows no {self._service!r}")
        host, port = answer
        return _Configuration(epoch, RedisAddress(host.decode(), int(port)))

    async def _ask_epoch(self) -> int:
        loop = asyncio.get_running_loop()
        if loop.time() < self._epoch_from:
            return 0
        try:
            entries = await self._connection.ask(("SENTINEL", "MASTER", self._service))
        except ResponseError:
            self._epoch_from = loop.time() + _EPOCH_PAUSE_SECONDS
            return 0
        return int(dict(zip(entries[::2], entries[1::2], strict=False)).get(b"config-epoch", 0))


class Sentinels:
    """The Sentinels of one group."""

    def __init__(self, url: StoreUrl, access: CredentialSource) -> None:
        self._service = url.service
        self._database = url.database
        self._access = access
        self._sentinels = [self._make_sentinel(address) for address in dict.fromkeys(url.addresses)]
        self._epoch = 0
        """Of the configuration that was used last."""
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
        """Return the primary that most Sentinels name, else that of the newest configuration; RedisError if none does.

        All are asked at once. Those that did not answer the last time are waited for only shortly when another one has.
        """
        asked = {sentinel.ask(): sentinel for sentinel in self._sentinels}
        are_given_up = False
        while True:
            answers = [task.result() for task in asked if task.done()]
            found = [answer for answer in answers if isinstance(answer, _Configuration)]
            running = [task for task in asked if not task.done()]
            agreed = self._find_agreed(found)
            if agreed or not running or are_given_up:
                break
            wait_seconds = _SILENT_SECONDS if found and all(asked[task].is_silent for task in running) else None
            done, _ = await asyncio.wait(running, timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
            are_given_up = not done
        if not found:
            errors = [answer for answer in answers if isinstance(answer, Exception)]
            raise join_errors(f"no Sentinel names the primary of {self._service!r}", errors)
        used = agreed or self._choose_newest(found)
        self._epoch = used.epoch
        return used.primary

    def _find_agreed(self, found: Sequence[_Configuration]) -> _Configuration | None:
        """Return the newest configuration with the primary that most Sentinels name, if they name one."""
        named = [one.primary for one in found]
        return max((one for one in found if self._are_most(named.count(one.primary))), default=None)

    def _choose_newest(self, found: Sequence[_Configuration]) -> _Configuration:
        """Return the newest of these; RedisError if a newer one has been used, and most Sentinels do not answer."""
        newest = max(found)
        if newest.epoch < self._epoch and not self._are_most(len(found)):
            raise RedisConnectionError(
                f"{len(found)} of {len(self._sentinels)} Sentinels answer, and know nothing of the last failover: "
                f"they name {newest.primary} as the primary of {self._service!r}"
            )
        return newest

    def _are_most(self, count: int) -> bool:
        return 2 * count > len(self._sentinels)

    async def close(self) -> None:
        await asyncio.gather(*(sentinel.close() for sentinel in self._sentinels))

    def _make_sentinel(self, address: RedisAddress) -> _Sentinel:
        async def dial() -> RespStream:
            return await dial_server(address, await self._access.sentinel_credentials(), await self._access.tls())

        return _Sentinel(address, self._service, dial)


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
        with suppress(RedisError):  # without Sentinels the primary still serves
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
