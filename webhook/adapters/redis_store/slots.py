"""RedisSlots: `ports.SlotStore` on Redis, a hash for each owner, which expires if nobody asks for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from webhook.adapters.redis_store import operations
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.plans import PlanCache
from webhook.core.quota import CounterPlan
from webhook.ports import HeldSlot, SlotClaim

_KEPT_MS = 24 * 3_600_000
"""An owner that nobody has asked for in this time is unknown, and is listed when the next of its Pods comes."""
_HELD_PER_CALL_MAX = 500
"""Redis serves no other client while the script runs, and admissions wait for it."""


class RedisSlots:
    """All operations but `confirm` are as urgent as admissions, of which they are part."""

    def __init__(self, plans: PlanCache, lanes: Lanes) -> None:
        self._plans = plans
        self._lanes = lanes

    async def claim(self, plan: CounterPlan, owner: str, claim: str, *, is_dry_run: bool) -> SlotClaim:
        operation = operations.claim_slot(self._plans.prepare(plan), owner, claim, _KEPT_MS, is_dry_run=is_dry_run)
        slot, replicas = await self._lanes.ask(operation)
        return SlotClaim(slot, replicas)

    async def learn(
        self,
        plan: CounterPlan,
        owner: str,
        replicas: int,
        held: Sequence[HeldSlot] | None,
        age_us: int,
        *,
        is_new: bool = False,
    ) -> None:
        """Learn all slots in one call: between two, a slot that is held might be claimed."""
        listed = False if held is None else _flatten(held)
        request = {"replicas": replicas, "held": listed, "age": age_us, "is_new": is_new, "ttl_ms": _KEPT_MS}
        await self._ask(plan, owner, "learn", **request)

    async def free(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        for some in _split_held(held):
            await self._ask(plan, owner, "free", held=_flatten(some))

    async def confirm(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        planned = self._plans.prepare(plan)
        for some in _split_held(held):
            request = {"held": _flatten(some), "ttl_ms": _KEPT_MS}
            await self._lanes.ask_patiently(operations.slots(planned, owner, "confirm", **request))

    async def doubt(self, plan: CounterPlan, owner: str) -> None:
        await self._ask(plan, owner, "doubt")

    async def forget(self, plan: CounterPlan, owner: str) -> None:
        await self._ask(plan, owner, "forget_owner")

    async def _ask(self, plan: CounterPlan, owner: str, action: str, **values: Any) -> Any:
        return await self._lanes.ask(operations.slots(self._plans.prepare(plan), owner, action, **values))


def _flatten(held: Sequence[HeldSlot]) -> list[int | str]:
    return [value for found in held for value in (found.slot, found.claim)]


def _split_held(held: Sequence[HeldSlot]) -> Iterator[Sequence[HeldSlot]]:
    """Yield the slots in parts, one part for each call."""
    return (held[first : first + _HELD_PER_CALL_MAX] for first in range(0, len(held), _HELD_PER_CALL_MAX))
