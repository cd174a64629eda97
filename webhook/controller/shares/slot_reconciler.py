"""Slot reconciler: reports to the store the slots that Pods in the cluster hold, and those that have become free.

Changes of one owner are sent in their order, and repeated until the store answers. A claim that was freed is not held
again: no Pod lives twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from msgspec import Struct

from webhook.controller.reports import ControllerTiming
from webhook.controller.retry_schedule import RetrySchedule
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.pods.variant_pod import VariantPod
from webhook.core.quota import CounterPlan
from webhook.core.shares import SlotOwner
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, HeldSlot, SlotOwners, SlotStore

_BATCH_MAX = 64
_CONCURRENT_OWNERS_MAX = 8
_CLAIM_AGE_US = 60_000_000
"""A claim that is younger may be of a Pod that is still being created: an API request lasts at most a minute."""
FORGET_AFTER_US = 300_000_000
"""How long an owner has had no Pods before it is looked up, and forgotten if it wants none."""

_OwnerKey = tuple[str, str]
"""A service, and the uid of an owner of its Pods."""


class _Owner(Struct, gc=False):
    """An owner of claimed slots, and the slots of its living Pods, by their claims."""

    owner: SlotOwner
    held: dict[str, int]
    empty_since_us: int = 0
    """When its last Pod left; looked up again after `FORGET_AFTER_US`."""


class SlotReconciler:
    """Receives Pods as they come and go. Pods with an index have no slots in the store."""

    def __init__(
        self,
        slots: SlotStore,
        owners: SlotOwners,
        clock: Clock,
        policy: Callable[[], CompiledPolicy | None],
        timing: ControllerTiming = ControllerTiming(),  # noqa: B008  frozen
    ) -> None:
        self._slots = slots
        self._reader = owners
        self._clock = clock
        self._policy = policy
        self._timing = timing
        self._owners: dict[_OwnerKey, _Owner] = {}
        self._changes: dict[_OwnerKey, dict[str, tuple[int, bool]]] = {}
        """Slots by their claims, and whether a Pod holds them: what the store has not been told."""
        self._uncorrected: dict[_OwnerKey, None] = {}
        """Owners of which the store may hold slots whose Pods have ended unnoticed."""
        self._added = asyncio.Event()
        self._retries = RetrySchedule(timing)

    def __len__(self) -> int:
        return len(self._owners)

    # --- events of the watch ---

    def hold(self, pod: VariantPod) -> None:
        """Note a living Pod that was not known before."""
        if pod.claim:
            self._find_owner(pod).held[pod.claim] = pod.slot
            self._note(pod, is_held=True)

    def free(self, pod: VariantPod) -> None:
        """Note a Pod that has ended, or has begun to end."""
        if not pod.claim:
            return
        owner = self._find_owner(pod)
        owner.held.pop(pod.claim, None)
        if not owner.held:
            owner.empty_since_us = self._clock.now_us()
        self._note(pod, is_held=False)

    def correct_all(self) -> None:
        """Note that all living Pods are known now: what else the store holds has ended unnoticed."""
        self._uncorrected.update(dict.fromkeys(self._owners))
        self._added.set()

    def on_lost(self) -> None:
        """Hold all slots of living Pods again: the store may have lost who has them."""
        for key, owner in self._owners.items():
            if owner.held:
                held = {claim: (slot, True) for claim, slot in owner.held.items()}
                self._changes.setdefault(key, {}).update(held)
        self._added.set()

    def drop(self, services: Iterable[str]) -> None:
        """Drop services that have no shares any more."""
        gone = set(services)
        for key in [key for key in self._owners if key[0] in gone]:
            del self._owners[key]
            self._changes.pop(key, None)
            self._uncorrected.pop(key, None)

    def _find_owner(self, pod: VariantPod) -> _Owner:
        return self._owners.setdefault((pod.service, pod.owner.uid), _Owner(pod.owner, {}))

    def _note(self, pod: VariantPod, *, is_held: bool) -> None:
        self._changes.setdefault((pod.service, pod.owner.uid), {})[pod.claim] = pod.slot, is_held
        self._added.set()

    # --- sending ---

    async def run(self) -> None:
        """Tell the store until cancelled."""
        while True:
            self._added.clear()
            if not await self.send():
                await self._retries.wait(self._added)

    async def send(self) -> bool:
        """Send a batch for each owner that is due; False if there is none."""
        changed = [key for key in self._changes if self._retries.is_due(key[0])]
        await self._for_each(self._send_changes, changed)
        uncorrected = [key for key in self._uncorrected if key not in self._changes and self._retries.is_due(key[0])]
        await self._for_each(self._correct, uncorrected)
        await self._for_each(self._forget, self._list_empty())
        return bool(changed or uncorrected)

    async def _for_each(self, act: Callable[[_OwnerKey, CounterPlan], Awaitable[None]], keys: list[_OwnerKey]) -> None:
        if not keys:
            return
        compiled, gate = self._policy(), asyncio.Semaphore(_CONCURRENT_OWNERS_MAX)

        async def run(key: _OwnerKey) -> None:
            plan = compiled.plans.get(key[0]) if compiled is not None else None
            if plan is None:
                self.drop((key[0],))
                return
            async with gate:
                try:
                    await act(key, plan)
                except StoreUnavailableError:
                    self._retries.postpone(key[0])

        await asyncio.gather(*(run(key) for key in keys))

    async def _send_changes(self, key: _OwnerKey, plan: CounterPlan) -> None:
        """Tell the store of an owner's changes; what it does not take stays before all that is newer."""
        changes = self._changes[key]
        batch = dict(islice(changes.items(), _BATCH_MAX))
        for is_held, tell in ((False, self._slots.free), (True, self._slots.confirm)):
            slots = [HeldSlot(slot, claim) for claim, (slot, holds) in batch.items() if holds is is_held]
            if slots:
                await tell(plan, key[1], slots)
        self._retries.reset(key[0])
        for claim, change in batch.items():
            if changes.get(claim) == change:
                del changes[claim]
        if not changes and self._changes.get(key) is changes:
            del self._changes[key]

    async def _correct(self, key: _OwnerKey, plan: CounterPlan) -> None:
        """Tell the store what the cluster shows of an owner, so that it frees what is left of earlier Pods."""
        known = self._owners.get(key)
        if known is None or not known.held:
            self._uncorrected.pop(key, None)
            return
        replicas = await self._reader.read_replicas(known.owner)
        if replicas is None:
            self._retries.postpone(key[0])
            return
        if replicas:
            held = [HeldSlot(slot, claim) for claim, slot in known.held.items()]
            await self._slots.learn(plan, key[1], replicas, held, _CLAIM_AGE_US)
        self._retries.reset(key[0])
        self._uncorrected.pop(key, None)

    def _list_empty(self) -> list[_OwnerKey]:
        before_us = self._clock.now_us() - FORGET_AFTER_US
        return [
            key
            for key, known in self._owners.items()
            if not known.held and known.empty_since_us < before_us and self._retries.is_due(key[0])
        ]

    async def _forget(self, key: _OwnerKey, plan: CounterPlan) -> None:
        """Forget an owner that wants no Pods; one that lacks Pods may have claims whose Pods are being created."""
        known = self._owners[key]
        replicas = await self._reader.read_replicas(known.owner)
        if replicas == 0 and not known.held:
            await self._slots.forget(plan, key[1])
            self._owners.pop(key, None)
        else:
            known.empty_since_us = self._clock.now_us()
