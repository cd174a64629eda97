"""Counts of decisions by policy in Redis: one hash for ten seconds, which expires; on connections of their own."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from webhook.adapters.redis_store.error_classes import translated
from webhook.adapters.redis_store.keys import rollout_of
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.core.rollout.counting import BUCKET_US, KEPT_BUCKETS, bucket_of

# Scripts of commands that the store's own script needs too: they take no further rights.
_ADD = """\
for at = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], (redis.call('HGET', KEYS[1], ARGV[at]) or 0) + ARGV[at + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
_READ = """\
local found = {}
for _, key in ipairs(KEYS) do
  found[#found + 1] = redis.call('HGETALL', key)
end
return found
"""
_KEPT_MS = KEPT_BUCKETS * BUCKET_US // 1_000 + 60_000
_CONNECTIONS_MAX = 4
"""Policies of a rollout are two; a Cluster may have each on another node."""


class RedisRolloutCounts:
    """A `ports.RolloutCounts` of one cluster. `now_us` is the store's time."""

    def __init__(self, transport: Transport, cluster: str, now_us: Callable[[], int]) -> None:
        self._transport = transport
        self._cluster = cluster
        self._now_us = now_us
        self._connections: dict[str, SharedConnection] = {}

    async def add(self, policy_hash: str, counts: Mapping[str, int]) -> None:
        if counts:
            key = rollout_of(self._cluster, policy_hash, bucket_of(self._now_us()))
            fields = [value for pair in counts.items() for value in pair]
            await self._ask(policy_hash, "EVAL", _ADD, 1, key, _KEPT_MS, *fields)

    async def read(self, policy_hash: str, since_us: int) -> Mapping[str, int]:
        now = bucket_of(self._now_us())
        # Another process may be ahead of this one's estimate of the store's time.
        buckets = range(max(bucket_of(since_us), now - KEPT_BUCKETS + 1), now + 2)
        keys = [rollout_of(self._cluster, policy_hash, bucket) for bucket in buckets]
        if not keys:
            return {}
        total = Counter[str]()
        for fields in await self._ask(policy_hash, "EVAL", _READ, len(keys), *keys):
            pairs = iter(fields)
            total.update({name.decode(): int(count) for name, count in zip(pairs, pairs, strict=True)})
        return dict(total)

    async def close(self) -> None:
        while self._connections:
            _, connection = self._connections.popitem()
            with suppress(RedisError, OSError, TimeoutError):
                await connection.close()

    async def _ask(self, policy_hash: str, *command: str | int) -> Any:
        """Send a command about one policy, whose keys are all on one node."""
        known = self._connections.get(policy_hash)
        if known is None:
            if len(self._connections) >= _CONNECTIONS_MAX:
                await self.close()
            key = rollout_of(self._cluster, policy_hash, 0)
            known = self._connections[policy_hash] = SharedConnection(lambda: self._transport.dial(key))
        return await translated(known.ask(command))
