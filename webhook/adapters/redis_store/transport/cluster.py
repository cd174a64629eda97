"""ClusterTransport: a Redis Cluster, with the slot map learned from the nodes and a connection to each.

redis-py's RedisCluster retries calls by itself, and reads passwords and certificates only once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, ClusterError, MovedError, RedisError, TryAgainError

from webhook.adapters.redis_store.transport.connect import join_errors
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.protocol import Connected
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.server import ask_history, forget, greet
from webhook.adapters.redis_store.transport.stream import Command, RespStream
from webhook.ports.store_url import RedisAddress

_HOPS_MAX = 5
_ASKING: tuple[Command, ...] = (("ASKING",),)
_TROUBLES = (RedisError, OSError, TimeoutError)


class ClusterTransport:
    """Sends a call to the node that has the slot of its first key. After any error the slot map is read again."""

    one_tag_a_call = True

    def __init__(
        self,
        seeds: Sequence[RedisAddress],
        dial: Callable[[RedisAddress], Coroutine[Any, Any, RespStream]],
        script: Script,
    ) -> None:
        self.on_connected: Connected | None = None
        self._seeds = tuple(seeds)
        self._dial = dial
        self._script = script
        self._owners: dict[int, RedisAddress] = {}
        """By slot."""
        self._connections: dict[RedisAddress, SharedConnection] = {}
        self._slots: dict[str, int] = {}
        """By tag."""
        self._suspect: RedisAddress | None = None
        """The node that failed last: asked for the slot map last."""
        self._learning: asyncio.Task[None] | None = None

    def lane(self, tag: str) -> str:
        owner = self._owners.get(self._find_slot(tag))
        return str(owner) if owner else ""

    async def run(self, keys: Sequence[str], argument: bytes) -> Any:
        if not self._owners:
            await self._learn()
        slot = key_slot(keys[0].encode())
        before: tuple[Command, ...] = ()
        owner = self._owners.get(slot)
        for _ in range(_HOPS_MAX):
            if owner is None:
                self._learn_soon()
                raise ClusterDownError(f"no node has slot {slot}")
            try:
                return await self._script.run(self._get_connection(owner), keys, argument, *before)
            except MovedError as error:  # a redirected call was not carried out
                owner, before = _find_address(error, owner), ()
                self._owners[slot] = owner
                self._learn_soon()
            except AskError as error:
                owner, before = _find_address(error, owner), _ASKING
            except TryAgainError:  # its keys are being moved between nodes
                raise
            except _TROUBLES:
                self._suspect = owner
                self._learn_soon()
                raise
        raise ClusterError(f"slot {slot}: redirected {_HOPS_MAX} times")

    async def ask_histories(self) -> Mapping[str, str]:
        found = await self._ask_each(lambda connection: ask_history(connection.ask))
        names = {str(address): name if isinstance(name, str) else "" for address, name in found.items()}
        if not any(names.values()):
            _raise_first(found)
        return names

    async def infos(self) -> Mapping[str, bytes]:
        found = await self._ask_each(lambda connection: connection.ask(("INFO",)))
        _raise_first(found)
        return {str(address): info for address, info in found.items()}

    async def ping(self) -> None:
        _raise_first(await self._ask_each(lambda connection: connection.ask(("PING",))))

    async def forget(self, pattern: str) -> int:
        deleted = await self._ask_each(lambda connection: forget(connection, pattern))
        _raise_first(deleted)
        return sum(deleted.values())

    async def dial(self, key: str = "") -> RespStream:
        """Connect to the node that has a key; without one to any node: each receives what the others publish."""
        if key:
            return await self._dial_owner(key)
        nodes = dict.fromkeys(self._owners.values()) or self._seeds
        errors: list[Exception] = []
        for node in sorted(nodes, key=lambda node: (node == self._suspect, random.random())):  # noqa: S311  spreads load only
            try:
                return await self._dial(node)
            except _TROUBLES as error:
                errors.append(error)
        raise join_errors("no node of the Cluster accepts a connection", errors)

    async def dial_lane(self, lane: str) -> RespStream:
        for node in self._owners.values():
            if str(node) == lane:
                return await self._dial(node)
        raise ClusterDownError(f"{lane} has no slots any more")

    async def _dial_owner(self, key: str) -> RespStream:
        await self._learn()  # the slot may have moved, which is why there is a new connection
        slot = key_slot(key.encode())
        owner = self._owners.get(slot)
        if owner is None:
            raise ClusterDownError(f"no node has slot {slot}")
        return await self._dial(owner)

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    def _find_slot(self, tag: str) -> int:
        slot = self._slots.get(tag)
        if slot is None:
            slot = self._slots[tag] = key_slot(f"{{{tag}}}".encode())
        return slot

    def _get_connection(self, address: RedisAddress) -> SharedConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = SharedConnection(
                lambda: self._dial(address), lambda made: greet(made, str(address), self.on_connected)
            )
            self._connections[address] = connection
        return connection

    async def _ask_each(self, ask: Callable[[SharedConnection], Awaitable[Any]]) -> dict[RedisAddress, Any]:
        """Return the answer, or the error, of each node that has slots."""
        if not self._owners:
            await self._learn()
        nodes = list(dict.fromkeys(self._owners.values()))
        answers = await asyncio.gather(*(ask(self._get_connection(node)) for node in nodes), return_exceptions=True)
        found = dict(zip(nodes, answers, strict=True))
        for node, answer in found.items():
            if isinstance(answer, BaseException):
                self._suspect = node
                self._learn_soon()
        return found

    async def _learn(self) -> None:
        """Wait for a new slot map; a caller that is cancelled does not cancel the renewal."""
        self._learn_soon()
        if self._learning is not None:
            await asyncio.shield(self._learning)

    def _learn_soon(self) -> None:
        if self._learning is None:
            self._learning = asyncio.create_task(self._renew(), name="cluster-slots")
            self._learning.add_done_callback(self._on_learnt)

    def _on_learnt(self, task: "asyncio.Task[None]") -> None:
        self._learning = None
        if not task.cancelled():
            task.exception()  # raised in the waiting callers; the next failure renews the map again

    async def _renew(self) -> None:
        """Ask nodes one by one for the slot map; close the connections to nodes without slots."""
        asked = dict.fromkeys((*self._owners.values(), *self._seeds))
        errors: list[Exception] = []
        for node in sorted(asked, key=lambda node: node == self._suspect):
            try:
                self._owners = _decode_owners(await self._get_connection(node).ask(("CLUSTER", "SLOTS")), node)
            except _TROUBLES as error:
                errors.append(error)
                continue
            kept = set(self._owners.values())
            gone = [self._connections.pop(address) for address in [*self._connections] if address not in kept]
            await asyncio.gather(*(connection.close() for connection in gone))
            return
        raise join_errors("no node of the Cluster returns the slot map", errors)


def _decode_owners(ranges: Sequence[Any], asked: RedisAddress) -> dict[int, RedisAddress]:
    """Return the primaries by slot. A node that reports no host has that of the node that was asked."""
    owners: dict[int, RedisAddress] = {}
    for first, last, (host, port, *_), *_ in ranges:
        owner = RedisAddress((host or b"").decode() or asked.host, int(port))
        owners.update(dict.fromkeys(range(first, last + 1), owner))
    if not owners:
        raise ClusterDownError(f"{asked}: no node has any slot")
    return owners


def _find_address(error: AskError, asked: RedisAddress) -> RedisAddress:
    return RedisAddress(error.host or asked.host, error.port)


def _raise_first(found: Mapping[RedisAddress, Any]) -> None:
    for answer in found.values():
        if isinstance(answer, BaseException):
            raise answer
