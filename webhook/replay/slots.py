"""Slots of a replay: what becomes of Pods that have one, which of them find no node, and what the leader does then."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.core.shares import PodSlot, SharesPlan, SlotOwner, VariantPlan
from webhook.errors import UserError
from webhook.ports import CounterStore, HeldSlot, SlotStore, TakenSlot
from webhook.replay.summary import compute_remaining, render_breaker
from webhook.slots import SlotChooser

_AVOIDED = frozenset({State.OPEN, State.FORCED_OPEN})


class _Place(NamedTuple):
    """What a Pod has got."""

    plan: CounterPlan
    owner: SlotOwner
    slot: PodSlot


class ReplaySlots:
    """A `ports.PodSlots`: all Pods of a workload are those of the replay, so that nothing has to be listed."""

    def __init__(self, slots: SlotStore, counters: CounterStore) -> None:
        self._slots = slots
        self._counters = counters
        self._chooser = SlotChooser(slots, counters)
        self._last: _Place | None = None
        self._places: dict[str, _Place] = {}
        """By the Pod's uid."""
        self._pending: dict[str, _Place] = {}
        """Those that find no node."""
        self._evicted_once: set[tuple[str, str, int, int]] = set()
        """Variant, owner, generation of the opening, slot: a Pod of a slot is evicted once in an opening."""
        self._evicted: dict[str, list[str]] = {}

    async def take(
        self, shares: SharesPlan, plan: CounterPlan, owner: SlotOwner, claim: str, *, is_dry_run: bool
    ) -> TakenSlot:
        taken = await self._chooser.take(shares, plan, owner, claim, is_dry_run=is_dry_run)
        if not is_dry_run:
            self._last = _Place(plan, owner, taken.slot)
        return taken

    async def settle(self, uid: str, *, is_admitted: bool) -> None:
        """Keep the slot that was taken last for the Pod with this uid, or free it: the Pod is not created."""
        place, self._last = self._last, None
        if place is None:
            return
        self._places[uid] = place
        if not is_admitted:
            await self.free(uid)

    async def free(self, uid: str) -> None:
        """Free the slot of a Pod that no longer exists."""
        self._pending.pop(uid, None)
        place = self._places.pop(uid, None)
        if place is not None and place.owner.index is None:
            held = HeldSlot(place.slot.slot, place.slot.claim)
            await self._slots.free(place.plan, place.owner.uid, [held])

    async def report(self, uid: str, policy: CompiledPolicy, *, is_bound: bool) -> dict[str, Any]:
        """Report that a Pod has found a node, or none for too long; return the answer."""
        place = self._places.get(uid)
        if place is None:
            raise UserError(
                f"{uid!r}: no Pod with a slot has this uid", "give the uid of a Pod whose answer has a slot"
            )
        answer: dict[str, Any] = {"uid": uid, "service": place.plan.service, "variant": place.slot.variant}
        counters = _find_counters(policy, place)
        if is_bound:
            self._pending.pop(uid, None)
        if counters is None:
            return answer
        before = (await self._counters.snapshot(counters)).breaker
        if not is_bound:
            self._pending[uid] = place
        # While the breaker is closed, only Pods without a node are reported.
        if not is_bound or (before is not None and before.state is State.HALF_OPEN):
            outcome = Outcomes.from_single(ok=is_bound, latency_us=0, uid=place.slot.claim)
            await self._counters.record_outcomes(counters, [outcome])
        snapshot = await self._counters.snapshot(counters)
        return answer | render_breaker(snapshot) | {"openRemaining": compute_remaining(snapshot)}

    async def list_evicted(self, policy: CompiledPolicy) -> list[str]:
        """Return the Pods without a node that the leader evicts now, and free their slots."""
        evicted = []
        for uid, place in list(self._pending.items()):
            counters = _find_counters(policy, place)
            view = None if counters is None else (await self._counters.snapshot(counters)).breaker
            if counters is None or view is None or view.state not in _AVOIDED:
                continue
            once = (counters.service, place.owner.uid, view.generation, place.slot.slot)
            if once not in self._evicted_once:
                self._evicted_once.add(once)
                self._evicted.setdefault(place.plan.service, []).append(uid)
                evicted.append(uid)
        for uid in evicted:
            await self.free(uid)
        return evicted

    async def render(self, service: str, shares: SharesPlan | None) -> dict[str, Any]:
        """Return the variants of a service with their Pods and breakers, and which Pods were evicted since last."""
        if shares is None:
            return {}
        places = [place.slot for place in self._places.values() if place.plan.service == service]
        rows = [await self._render_variant(variant, places) for variant in shares.variants]
        return {"variants": rows, "evicted": self._evicted.pop(service, [])}

    async def _render_variant(self, variant: VariantPlan, places: Iterable[PodSlot]) -> dict[str, Any]:
        row: dict[str, Any] = {"name": variant.name, "pods": sum(place.variant == variant.name for place in places)}
        if variant.counters is None:
            return row | {"breaker": None, "openRemaining": 0}
        snapshot = await self._counters.snapshot(variant.counters)
        return row | {"breaker": render_breaker(snapshot)["breaker"], "openRemaining": compute_remaining(snapshot)}


def render_slot(slot: PodSlot | None) -> dict[str, Any]:
    """Return the fields of a Pod's answer about its slot."""
    return {} if slot is None else {"slot": slot.slot, "variant": slot.variant}


def _find_counters(policy: CompiledPolicy, place: _Place) -> CounterPlan | None:
    """Return the counters of a Pod's variant, None if it has no breaker."""
    shares = policy.shares.get(place.plan.service)
    variant = None if shares is None else shares.find(place.slot.variant)
    return None if variant is None else variant.counters
