"""Counts of decisions by policy in this process, for a server whose counters are in memory."""

from collections import Counter
from collections.abc import Mapping

from webhook.core.rollout.counting import KEPT_BUCKETS, bucket_of
from webhook.ports import Clock


class MemoryRolloutCounts:
    """A `ports.RolloutCounts`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[tuple[int, str], Counter[str]] = {}

    async def add(self, policy_hash: str, counts: Mapping[str, int]) -> None:
        now = bucket_of(self._clock.now_us())
        self._buckets = {key: found for key, found in self._buckets.items() if key[0] > now - KEPT_BUCKETS}
        self._buckets.setdefault((now, policy_hash), Counter()).update(counts)

    async def read(self, policy_hash: str, since_us: int) -> Mapping[str, int]:
        now = bucket_of(self._clock.now_us())
        first, total = max(bucket_of(since_us), now - KEPT_BUCKETS + 1), Counter[str]()
        for (bucket, name), found in self._buckets.items():
            if name == policy_hash and bucket >= first:
                total.update(found)
        return dict(total)
