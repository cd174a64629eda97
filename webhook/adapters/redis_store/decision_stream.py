"""Decision records in one Redis stream, and policy documents in keys that expire; on a connection of their own."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from webhook.adapters.redis_store.error_classes import translated
from webhook.adapters.redis_store.keys import decisions_of, policy_of
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.stream import Command
from webhook.ports import SharedPage, SharedRecord

RECORDS_MAX = 50_000
POLICY_SECONDS = 7 * 86_400
_FIELD = b"record"


class RedisDecisions:
    """`ports.SharedDecisions` of one cluster. Errors of its connection do not affect admissions."""

    def __init__(self, transport: Transport, cluster: str, records_max: int = RECORDS_MAX) -> None:
        self._transport = transport
        self._cluster = cluster
        self._key = decisions_of(cluster)
        self._add: Command = ("XADD", self._key, "MAXLEN", "~", records_max, "*", _FIELD)
        self._connection = SharedConnection(lambda: transport.dial(self._key))

    async def append(self, records: Sequence[bytes]) -> None:
        add = self._add
        await translated(self._connection.ask(*[(*add, record) for record in records]))

    async def read_page(self, begin: str, count: int) -> SharedPage:
        entries: list[Any] = await translated(
            self._connection.ask(("XREVRANGE", self._key, begin or "+", "-", "COUNT", count))
        )
        records = [
            SharedRecord(int(entry.partition(b"-")[0]), fields[1])
            for entry, fields in entries
            if fields and fields[0] == _FIELD
        ]
        has_more = len(entries) == count and bool(records)
        return SharedPage(records, f"({entries[-1][0].decode()}" if has_more else None)

    async def keep_policy(self, policy_hash: str, document: bytes) -> None:
        await self._once(policy_hash, "SET", document, "EX", POLICY_SECONDS)

    async def read_policy(self, policy_hash: str) -> bytes | None:
        found: Sequence[bytes | None] = await self._once(policy_hash, "MGET")
        return found[0]

    async def close(self) -> None:
        with suppress(RedisError, OSError, TimeoutError):
            await self._connection.close()

    async def _once(self, policy_hash: str, name: str, *arguments: bytes | str | int) -> Any:
        """Send one command about a policy, whose key may be on another node of a Cluster than the stream."""
        key = policy_of(self._cluster, policy_hash)
        connection = SharedConnection(lambda: self._transport.dial(key))
        try:
            return await translated(connection.ask((name, key, *arguments)))
        finally:
            await connection.close()
