"""A store in memory that writes what it charges and refunds into a history."""

from collections.abc import Sequence

from tests.chaos.virtual.written import Written
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import Acquire, AcquireGroup, Booking, CounterPlan, Receipt


class RecordedStore(MemoryStore):
    """To be put before another store in memory, whose calls it writes."""

    def __init__(self, clock: VirtualClock, written: Written) -> None:
        super().__init__(clock)
        self.written = written

    async def acquire(self, request: Acquire) -> Receipt:
        receipt = await super().acquire(request)
        if receipt.charged:
            self.written.add_charge(request.plan, request.uid, request.cost, receipt.at_us)
        return receipt

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        receipt = await super().acquire_group(request)
        if receipt.charged:
            for member in request.members:
                self.written.add_charge(request.plan, member.uid, member.cost, receipt.at_us)
        return receipt

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        count = await super().book(plan, bookings)
        for booking in bookings:
            self.written.add_charge(plan, booking.uid, booking.cost, booking.at_us)
        return count

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        is_refunded = await super().refund(plan, uid)
        self.written.add_refund(plan, uid)
        return is_refunded
