"""RecentCharges: charges of the last minute for released Pods, which the store may lose and no server knows."""

from collections import deque
from collections.abc import Mapping

from webhook.core.quota import Booking, CounterPlan

_RECENT_US = 60_000_000


class RecentCharges:
    """Charges by age, and those that the store has to be given again: `owed`. Times are the store's."""

    def __init__(self) -> None:
        self._recent: deque[tuple[CounterPlan, Booking]] = deque()
        self._owed: dict[str, tuple[CounterPlan, Booking]] = {}

    def add(self, plan: CounterPlan, booking: Booking, *, is_owed: bool) -> None:
        self._recent.append((plan, booking))
        if is_owed:
            self._owed[booking.uid] = plan, booking

    def sweep(self, now_us: int) -> None:
        """Forget charges older than a minute."""
        while self._recent and self._recent[0][1].at_us + _RECENT_US < now_us:
            self._recent.popleft()

    def lost(self) -> None:
        """Owe all of them."""
        self._owed = {booking.uid: (plan, booking) for plan, booking in self._recent}

    def owed(self) -> Mapping[tuple[str, str], tuple[CounterPlan, list[Booking]]]:
        """Return what is owed, by the key of its plan."""
        found: dict[tuple[str, str], tuple[CounterPlan, list[Booking]]] = {}
        for plan, booking in self._owed.values():
            found.setdefault(plan.key, (plan, []))[1].append(booking)
        return found

    def paid(self, bookings: list[Booking]) -> None:
        """Owe these no more."""
        for booking in bookings:
            self._owed.pop(booking.uid, None)
