"""The shards of a Redis Cluster: each has a third of the slots, on a master and on its replica."""

from collections.abc import Sequence

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

SHARDS = 3


def number_shards(nodes: Sequence[str]) -> dict[str, int]:
    """Return the shard of each node by name: all masters, then their replicas in the same order."""
    return {name: place % SHARDS for place, name in enumerate(nodes)}


def find_shard(tag: str) -> int:
    """Return the shard that has the slot of a tag."""
    slot = key_slot(f"{{{tag}}}".encode())
    ends = [(shard + 1) * REDIS_CLUSTER_HASH_SLOTS // SHARDS for shard in range(SHARDS)]
    return next(shard for shard, end in enumerate(ends) if slot < end)
