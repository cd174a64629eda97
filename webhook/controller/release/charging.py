"""Charging of waiting Pods: one request to the store, and what the store may lose."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from webhook.controller.release.actions import Released
from webhook.controller.release.gated_groups import GatedGroup
from webhook.controller.release.gated_pods import GatedPod
from webhook.core.quota import Acquire, AcquireGroup, Booking, CounterPlan, GroupMember, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore, GroupCharges

_RECENT_US_MAX = 60_000_000


class ReleaseStore(CounterStore, GroupCharges, Protocol):
    """The store of the counters that Pods and groups are charged to."""


class RecentCharges:
    """Charges by age, and those to submit to the store again: `list_owed`."""

    def __init__(self) -> None:
        self._recent: deque[tuple[CounterPlan, Booking, int]] = deque()
        """With the moment of their release: those in bookings are the store's."""
        self._owed: dict[str, tuple[CounterPlan, Booking]] = {}

    def add(self, plan: CounterPlan, booking: Booking, now_us: int, *, is_owed: bool) -> None:
        self._recent.append((plan, booking, now_us))
        if is_owed:
            self._owed[booking.uid] = plan, booking

    def sweep(self, now_us: int) -> None:
        """Forget charges older than a minute."""
        while self._recent and self._recent[0][2] + _RECENT_US_MAX < now_us:
            self._recent.popleft()

    def owe_all(self) -> None:
        """Note that the store may have lost all of them."""
        self._owed = {booking.uid: (plan, booking) for plan, booking, _ in self._recent}

    def list_owed(self) -> Mapping[tuple[str, str], tuple[CounterPlan, list[Booking]]]:
        """Return the charges to submit again, by the key of their plan."""
        found: dict[tuple[str, str], tuple[CounterPlan, list[Booking]]] = {}
        for plan, booking in self._owed.values():
            found.setdefault(plan.key, (plan, []))[1].append(booking)
        return found

    def settle(self, bookings: list[Booking]) -> None:
        """Note that the store has these."""
        for booking in bookings:
            self._owed.pop(booking.uid, None)


async def charge(store: ReleaseStore, plan: CounterPlan, whole: Released) -> Receipt | None:
    """Charge a Pod or a group if it fits; None if the store gives no answer. Concurrent charges share one call."""
    waiting = whole.waiting
    try:
        if isinstance(whole, GatedGroup):
            return await store.acquire_group(_build_group_request(plan, whole))
        # A refusal is no quota event: no user asked now.
        asked = Acquire(
            *(plan, whole.namespace, waiting.uid, waiting.cost, whole.source),
            name=whole.name,
            team=waiting.scope,
            counts_as_event=False,
        )
        return await store.acquire(asked)
    except StoreUnavailableError:
        return None


async def renew_charge(
    store: ReleaseStore, plan: CounterPlan, whole: Released, receipt: Receipt | None
) -> Receipt | None:
    """Replace the former charge of a Pod of whose group others run, before others take its room; return the answer."""
    if receipt is None or not receipt.repeated or isinstance(whole, GatedGroup) or whole.group is None:
        return receipt
    try:
        await store.refund(plan, whole.waiting.uid)
    except StoreUnavailableError:
        return None
    return await charge(store, plan, whole)


async def take_back(store: ReleaseStore, plan: CounterPlan, whole: Released, receipt: Receipt | None) -> Receipt | None:
    """Refund what waits on although it is charged; return the answer, None if the store gives none to the refund."""
    try:
        if receipt is not None and receipt.refused is None:
            # Or a former leader charged it, or its admission: its window may have passed.
            for pod in whole.pods:
                await store.refund(plan, pod.waiting.uid)
    except StoreUnavailableError:  # a later charge is a repeated one, and refunded then
        return None
    return receipt


async def is_charged(store: ReleaseStore, plan: CounterPlan, pod: GatedPod) -> bool:
    """Return whether a waiting Pod has a charge. StoreUnavailableError: it is not known."""
    waiting = pod.waiting
    asked = Acquire(plan, pod.namespace, waiting.uid, waiting.cost, pod.source, peek=True, team=waiting.scope)
    return (await store.acquire(asked)).repeated


def _build_group_request(plan: CounterPlan, group: GatedGroup) -> AcquireGroup:
    members = tuple(GroupMember(pod.waiting.uid, pod.name, pod.waiting.cost, pod.source) for pod in group.members)
    return AcquireGroup(plan, group.namespace, members, team=group.waiting.scope)
