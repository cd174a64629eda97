"""Decision records in one Redis stream, and policy documents in keys that expire; on a connection of their own."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from redis.exceptions import RedisError

from webhook.adapters.redis_store.error_classes import translated
from webhook.adapters.redis_store.keys import decisions_of, policy_of
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.stream import Command
from webhook.ports import SharedPage, SharedRecord

RECORDS_MAX = 50_000
RECORD_BYTES = 1024
"""On average of a full stream: larger records make it shorter."""
POLICY_SECONDS = 7 * 86_400
_FIELD = b"record"
_BLOCKS_MAX = 500


class _StreamLength:
    """How many records the stream may have: as many of the newest as fit its bytes.

    Each server goes by the records that it has written itself, and the shortest length applies: until each of them has
    written as much, those of all servers together may have the bytes of each.
    """

    def __init__(self, records_max: int) -> None:
        self._records_max, self._bytes_max = records_max, records_max * RECORD_BYTES
        self._block_records = max(1, records_max // _BLOCKS_MAX)
        self.blocks: deque[tuple[int, int]] = deque()
        """Numbers of records that were written together, and their bytes."""
        self._records = self._bytes = 0
        self._is_short = False

    @property
    def most(self) -> int:
        return self._records if self._is_short else self._records_max

    def extend(self, records: Sequence[bytes]) -> "_StreamLength":
        """Return the length with more records; this one stays, in case they cannot be written."""
        extended = copy(self)
        extended.blocks = deque(self.blocks)
        extended.add(records)
        return extended

    def add(self, records: Sequence[bytes]) -> None:
        count, size = len(records), sum(map(len, records))
        self._records += count
        self._bytes += size
        if self.blocks and self.blocks[-1][0] < self._block_records:
            last_count, last_size = self.blocks.pop()
            self.blocks.append((last_count + count, last_size + size))
        else:
            self.blocks.append((count, size))
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        blocks = self.blocks
        while len(blocks) > 1 and (self._bytes > self._bytes_max or self._records - blocks[0][0] >= self._records_max):
            self._is_short = self._is_short or self._bytes > self._bytes_max
            count, size = blocks.popleft()
            self._records -= count
            self._bytes -= size
        if self._records >= self._records_max:
            self._is_short = False


class RedisDecisions:
    """`ports.SharedDecisions` of one cluster. Errors of its connection do not affect admissions."""

    def __init__(self, transport: Transport, cluster: str, records_max: int = RECORDS_MAX) -> None:
        self._transport = transport
        self._cluster = cluster
        self._key = decisions_of(cluster)
        self._length = _StreamLength(records_max)
        self._connection = SharedConnection(lambda: transport.dial(self._key))

    async def append(self, records: Sequence[bytes]) -> None:
        length = self._length.extend(records)
        add: Command = ("XADD", self._key, "MAXLEN", "~", length.most, "*", _FIELD)
        await translated(self._connection.ask(*[(*add, record) for record in records]))
        self._length = length  # once they are written: the writer repeats what has failed

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
