"""Charging of waiting Pods: one request to the store, its refusal, and the charges that the store may lose."""

from collections import deque
from collections.abc import Mapping

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.breaker import State
from webhook.core.quota import Acquire, Booking, CounterPlan, DeniedBy, Holder, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore

_RECENT_US_MAX = 60_000_000


class RecentCharges:
    """Charges by age, and those to submit to the store again: `list_owed`. Times are the store's."""

    def __init__(self) -> None:
        self._recent: deque[tuple[CounterPlan, Booking]] = deque()
        self._owed: dict[str, tuple[CounterPlan, Booking]] = {}

    def add(self, plan: CounterPlan, booking: Booking, *, is_owed: bool) -> None:
        self._recent.append((plan, booking))
        if is_owed:
            self._owed[booking.uid] = plan, booking

    def sweep(self, now_us: int) -> None:
        """Forget charges older than a minute."""
        while self._recent and self._recent[0][1].at_us + _RECENT_US_MAX < now_us:
            self._recent.popleft()

    def owe_all(self) -> None:
        """Note that the store may have lost all of them."""
        self._owed = {booking.uid: (plan, booking) for plan, booking in self._recent}

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


RETRY_US = 1_000_000
"""Delay after a refusal whose end is unknown: by live Pods, probes in flight, or a store without an answer."""
_NEVER_US = 60_000_000
"""A limit was lowered below what the Pod needs: it can pass only under another policy."""


async def charge(store: CounterStore, plan: CounterPlan, pod: GatedPod) -> Receipt | None:
    """Charge a Pod if it fits; None if the store gives no answer. Concurrent charges share one call."""
    waiting = pod.waiting
    # A refusal is no quota event: no user asked now.
    asked = Acquire(plan, pod.namespace, waiting.uid, waiting.cost, pod.source, name=pod.name, counts_as_event=False)
    try:
        return await store.acquire(asked)
    except StoreUnavailableError:
        return None


def find_obstacle(receipt: Receipt) -> tuple[int, Holder]:
    """Return until when a refused Pod is passed, and whose limit refuses it."""
    view = receipt.breaker
    if receipt.refused is DeniedBy.BREAKER:
        is_open = view is not None and view.state in {State.OPEN, State.FORCED_OPEN}
        return (view.open_until_us if view is not None and is_open else receipt.at_us + RETRY_US), Holder.SERVICE
    holders = {use.of for use in receipt.over}
    by = holders.pop() if len(holders) == 1 else Holder.SERVICE
    if receipt.free_at_us is None:
        return receipt.at_us + _NEVER_US, by
    ends_unknown = any(use.of is Holder.STANDING for use in receipt.over)
    return max(receipt.free_at_us, receipt.at_us + RETRY_US if ends_unknown else 0), by
