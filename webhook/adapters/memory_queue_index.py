"""In-memory index of the waiting Pods of one process. No operation awaits, so each is atomic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from webhook.core.quota import CounterPlan
from webhook.ports import Clock


@dataclass(slots=True)
class _Registered:
    times_us: dict[str, int] = field(default_factory=dict)
    expires_us: int = 0


class MemoryQueueIndex:
    """`ports.QueueIndex` without persistence. As in Redis, Pods of a service expire after a time without use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._services: dict[tuple[str, str], _Registered] = {}

    async def register(self, plan: CounterPlan, uid: str) -> bool:
        times_us = self._find_times(plan)
        if uid not in times_us:
            if len(times_us) >= plan.waiting_max:
                return False
            times_us[uid] = self._clock.now_us()
        self._renew(plan, times_us)
        return True

    async def restore(self, plan: CounterPlan, times_us: Mapping[str, int]) -> None:
        self._renew(plan, {**times_us, **self._find_times(plan)})

    async def list_waiting(self, plan: CounterPlan) -> Mapping[str, int]:
        times_us = self._find_times(plan)
        self._renew(plan, times_us)
        return dict(times_us)

    async def find_times_us(self, plan: CounterPlan, uids: Sequence[str]) -> Mapping[str, int]:
        known = self._find_times(plan)
        return {uid: known[uid] for uid in uids if uid in known}

    async def count(self, plan: CounterPlan) -> int:
        return len(self._find_times(plan))

    async def forget(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        times_us = self._find_times(plan)
        for uid in uids:
            times_us.pop(uid, None)

    def _find_times(self, plan: CounterPlan) -> dict[str, int]:
        """Return the registered Pods of a service; if there are none, a new empty dictionary."""
        known = self._services.get(plan.key)
        return known.times_us if known is not None and self._clock.now_us() < known.expires_us else {}

    def _renew(self, plan: CounterPlan, times_us: dict[str, int]) -> None:
        if times_us:
            self._services[plan.key] = _Registered(times_us, self._clock.now_us() + plan.queue_lasts_us)
