"""Live Pods of a pool: as those of a service, with the service of each Pod, and with guarantees instead of surge."""

from collections.abc import Iterator, Mapping

from webhook.core.ledger.guaranteed_windows import list_live_uses
from webhook.core.ledger.live_set import LiveSet, subtract
from webhook.core.quota import Cost, PoolPlan, PoolPod, Use


class PoolLiveSet(LiveSet):
    """A Pod is removed only for the service that it counts for: another member may have taken it over."""

    __slots__ = ("_services",)

    def __init__(self) -> None:
        super().__init__()
        self._services: dict[str, str] = {}

    def find_held_by(self, service: str, uid: str) -> Cost | None:
        """Return the amounts of a live Pod of a service, None for any other."""
        return self.find_held(uid) if self._services.get(uid) == service else None

    def list_pods(self) -> Iterator[PoolPod]:
        """Yield the live Pods, each with its service."""
        for uid, amounts in self._pods.items():
            yield PoolPod(uid, self._services[uid], amounts)

    def judge_pool(self, pool: PoolPlan, asked: Cost) -> tuple[list[int], list[Use]]:
        """Return what each limit of the pool holds, and the limits that `asked` would exceed."""
        found = list(self._list_pool_uses(pool, asked))
        return [use.used for use, _ in found], [use for use, is_over in found if is_over]

    def list_uses_of_pool(self, pool: PoolPlan) -> tuple[Use, ...]:
        """Return the current use of every limit of the pool."""
        units = {limit.counts: 1 for limit in pool.standing.limits} if pool.standing is not None else {}
        return tuple(use for use, _ in self._list_pool_uses(pool, units))

    def _list_pool_uses(self, pool: PoolPlan, asked: Mapping[str, int]) -> Iterator[tuple[Use, bool]]:
        if pool.standing is not None:
            yield from list_live_uses(pool.name, pool.standing, self._sums, asked)

    def put_for(self, service: str, pool: PoolPlan, uid: str, cost: Cost, now_us: int) -> bool:
        """Add or update a live Pod of a service, with what counts of its cost; return whether that changed anything."""
        if pool.standing is None:
            return False
        amounts, before = pool.standing.select_amounts(cost), self._pods.get(uid)
        self.touched_us = now_us
        if amounts == before and self._services[uid] == service:
            return False
        self._pods[uid], self._services[uid] = amounts, service
        self._add(subtract(amounts, before or {}))
        return True

    def remove_for(self, service: str, uid: str, now_us: int) -> bool:
        """Remove a live Pod of a service; return whether it was there."""
        if self._services.get(uid) != service:
            return False
        del self._services[uid]
        return self.remove(uid, now_us)
