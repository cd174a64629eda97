"""RecentClaims: this server's claims of the last minute, of which a store that has lost data is told again.

Their Pods may still be created, so that no list shows them.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import HeldSlot, SlotStore
from webhook.support.slices import slices

SETTLED_SECONDS = 1.5
"""Longer than a Pod usually takes from its mutating call until a list of the API server shows it, and than the other
servers take to notice a loss."""
CREATION_SECONDS = 60
"""An API request lasts at most a minute: an older claim is of a Pod that a list shows, or of none."""
_CLAIMS_MAX = 10_000
_OWNERS_PER_STEP_MAX = 64


class _Claim(Struct, frozen=True, gc=False):
    plan: CounterPlan
    owner: str
    slot: int
    at_seconds: float


class RecentClaims:
    """Claims by their names, the oldest first. `is_untold`: the store may lack claims of this server or of others."""

    def __init__(
        self,
        slots: SlotStore,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_untold = False
        self._slots = slots
        self._sleep = sleep
        self._now_seconds = now_seconds
        self._claims: dict[str, _Claim] = {}
        self._owned: dict[tuple[str, str], dict[str, _Claim]] = {}  # of each service's owner, the oldest first
        self._losses = 0
        self._told_seconds = -math.inf
        self._telling: asyncio.Task[None] | None = None
        self._repeating: asyncio.Task[None] | None = None

    def add(self, plan: CounterPlan, owner: str, held: HeldSlot) -> None:
        """Remember that the store has given a slot."""
        claims, now_seconds = self._claims, self._now_seconds()
        self.drop(held.claim)
        claim = claims[held.claim] = _Claim(plan, owner, held.slot, now_seconds)
        self._owned.setdefault((plan.service, owner), {})[held.claim] = claim
        since_seconds, oldest = now_seconds - CREATION_SECONDS, next(iter(claims))
        while len(claims) > _CLAIMS_MAX or claims[oldest].at_seconds < since_seconds:
            self.drop(oldest)
            oldest = next(iter(claims))

    def drop(self, claim: str) -> None:
        """Forget a claim, such as one whose slot was freed."""
        found = self._claims.pop(claim, None)
        if found:
            key = found.plan.service, found.owner
            owned = self._owned[key]
            del owned[claim]
            if not owned:
                del self._owned[key]

    def knows(self, service: str, owner: str) -> bool:
        """Return whether the store has given slots of an owner since it was told last: else it may lack it rightly."""
        owned = self._owned.get((service, owner))
        if not owned:
            return False
        since_seconds = max(self._told_seconds, self._now_seconds() - CREATION_SECONDS)
        return owned[next(reversed(owned))].at_seconds >= since_seconds

    def on_loss(self) -> None:
        """Tell the store again, as soon as it answers: it may have lost claims that it acknowledged."""
        self._losses += 1
        self.is_untold = True
        if self._repeating is None:
            self._repeating = asyncio.create_task(self._repeat(), name="slots-after-loss")

    async def settle(self) -> None:
        """Tell the store, and give the other servers time to do so; StoreUnavailableError without an answer."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell(), name="slots-told-again")
            self._telling.add_done_callback(self._end_telling)
        await asyncio.shield(self._telling)

    async def _repeat(self) -> None:
        try:
            while self.is_untold:
                try:
                    await self.settle()
                except StoreUnavailableError:
                    await self._sleep(SETTLED_SECONDS)
        finally:
            self._repeating = None

    async def _tell(self) -> None:
        losses, began_seconds = self._losses, self._now_seconds()
        async for some in slices(self._list_by_owner().items(), _OWNERS_PER_STEP_MAX):
            await asyncio.gather(*(self._slots.confirm(plan, owner, held) for (_, owner), (plan, held) in some))
        await self._sleep(SETTLED_SECONDS)
        self.is_untold, self._told_seconds = losses != self._losses, began_seconds

    def _end_telling(self, task: "asyncio.Task[None]") -> None:
        self._telling = None
        if not task.cancelled():
            task.exception()  # everyone who waited may have left

    def _list_by_owner(self) -> Mapping[tuple[str, str], tuple[CounterPlan, list[HeldSlot]]]:
        """Return the claims of each owner, the newest first: an older one of a slot is of a Pod that has ended."""
        since_seconds = self._now_seconds() - CREATION_SECONDS
        owners: dict[tuple[str, str], tuple[CounterPlan, list[HeldSlot]]] = {}
        for key, owned in self._owned.items():
            recent = [(claim, found) for claim, found in reversed(owned.items()) if found.at_seconds >= since_seconds]
            if recent:
                owners[key] = recent[0][1].plan, [HeldSlot(found.slot, claim) for claim, found in recent]
        return owners
