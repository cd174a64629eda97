"""In-memory slots of one process. No operation awaits, so each is atomic."""

from collections.abc import Sequence

from webhook.core.quota import CounterPlan
from webhook.core.shares.owner_slots import OwnerSlots
from webhook.ports import Clock, HeldSlot, SlotClaim


class MemorySlots:
    """A `ports.SlotStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._owners: dict[tuple[str, str], OwnerSlots] = {}

    async def claim(self, plan: CounterPlan, owner: str, claim: str, *, is_dry_run: bool) -> SlotClaim:
        slots = self._owners.get((plan.service, owner))
        if slots is None or not slots.is_known:
            return SlotClaim(0)
        slot = slots.find(claim)
        if not slot:
            slot = slots.find_free()
            if not is_dry_run:
                slots.take(slot, claim, self._clock.now_us())
        return SlotClaim(slot, slots.replicas)

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
        if is_new:
            self._owners.setdefault((plan.service, owner), OwnerSlots()).is_known = True
        slots = self._owners.get((plan.service, owner))
        if slots is None or not slots.is_known:
            return
        slots.replicas = replicas
        if held is not None:
            now_us = self._clock.now_us()
            slots.keep(((found.slot, found.claim) for found in held), now_us - age_us, now_us)

    async def free(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        slots = self._owners.get((plan.service, owner))
        if slots is not None:
            for found in held:
                slots.free(found.slot, found.claim)

    async def confirm(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        slots = self._owners.setdefault((plan.service, owner), OwnerSlots())
        for found in held:
            slots.confirm(found.slot, found.claim, self._clock.now_us())

    async def doubt(self, plan: CounterPlan, owner: str) -> None:
        slots = self._owners.get((plan.service, owner))
        if slots is not None:
            slots.is_known = False

    async def forget(self, plan: CounterPlan, owner: str) -> None:
        self._owners.pop((plan.service, owner), None)
