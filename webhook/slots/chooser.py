"""SlotChooser: the slot and the variant of a new Pod, by its number and the breakers of variants."""

import asyncio
from collections.abc import Awaitable, Callable

from webhook.core.breaker import BreakerView, State
from webhook.core.quota import Acquire, CounterPlan
from webhook.core.shares import PodSlot, SharesPlan, SlotOwner, VariantPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore, SlotOwners, SlotStore, TakenSlot
from webhook.slots.slot_numbers import UNREPORTED, SlotAsk, SlotNumbers, SlotReports

_CLOSED = frozenset({State.CLOSED, State.FORCED_CLOSED})


class SlotChooser:
    """A `ports.PodSlots`. `owners`, `spare` and `reports` are as of `SlotNumbers`; `counters` have the breakers."""

    def __init__(
        self,
        slots: SlotStore,
        counters: CounterStore,
        owners: SlotOwners | None = None,
        *,
        spare: SlotStore | None = None,
        reports: SlotReports = UNREPORTED,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._numbers = SlotNumbers(slots, owners, spare, reports, sleep)
        self._counters = counters

    def on_loss(self) -> None:
        """Tell the store of recent claims again: it may have lost data that it acknowledged."""
        self._numbers.claims.on_loss()

    async def take(
        self, shares: SharesPlan, plan: CounterPlan, owner: SlotOwner, claim: str, *, is_dry_run: bool
    ) -> TakenSlot:
        ask = SlotAsk(plan, owner, claim, is_dry_run)
        slot, guess = (owner.index + 1, "") if owner.index is not None else await self._numbers.take(ask)
        intended = shares.variants[shares.split.find_variant(slot)]
        chosen, reason = intended.name, f"slot {slot} of {owner.kind} {owner.name} is {intended.name}{guess}"
        if self._find_tripped(intended) is not None:
            chosen, obstacles = await self._choose(shares, slot, ask)
            reason += obstacles
        return TakenSlot(PodSlot(slot, chosen, intended.name, claim, owner.kind), reason)

    async def _choose(self, shares: SharesPlan, slot: int, ask: SlotAsk) -> tuple[str, str]:
        """Return the variant that a Pod gets where a breaker is not closed, and in words why it is another one."""
        obstacles = dict[str, str]()
        for variant in shares.variants[shares.split.find_variant(slot) :]:
            obstacle = await self._find_obstacle(variant, ask)
            if not obstacle:
                break
            obstacles[variant.name] = obstacle
        chosen = shares.choose_variant(slot, lambda variant: variant.name in obstacles).name
        return chosen, f"; {', '.join(obstacles.values())}: the Pod gets {chosen}" if obstacles else ""

    def _find_tripped(self, variant: VariantPlan) -> BreakerView | None:
        """Return the breaker of a variant if it is known not to be closed."""
        counters = variant.counters
        if counters is None or counters.breaker is None:
            return None
        view = self._counters.find_last_breaker(counters)
        if counters.breaker.forcing is None and (view is None or view.state in _CLOSED):
            return None  # the usual case
        # Redis knows only an open breaker for sure: one that was tripped may have become HALF_OPEN since.
        view = self._counters.find_known_breaker(counters) or view
        return None if view is None or view.state in _CLOSED else view

    async def _find_obstacle(self, variant: VariantPlan, ask: SlotAsk) -> str:
        """Return why a Pod does not get a variant, "" if it does: in HALF_OPEN, as one of its probes."""
        counters, view = variant.counters, self._find_tripped(variant)
        if counters is None or view is None:
            return ""
        if view.compute_open_remaining_us(self._counters.now_us()):
            return f"{variant.name} is {view.state} ({view.reason})"
        asked = Acquire(counters, ask.owner.namespace, ask.claim, {}, "", peek=ask.is_dry_run, counts_as_event=False)
        try:
            receipt = await self._counters.acquire(asked)
        except StoreUnavailableError:
            return f"{variant.name} is {view.state}, and the store does not answer"
        if receipt.refused is None:
            return ""
        view = receipt.breaker or view
        return f"{variant.name} is {view.state} ({view.reason})"
