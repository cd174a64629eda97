"""Counters, and what they remember of Pods."""

from collections.abc import Sequence
from typing import Protocol

from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome import Outcomes, Settlement, Start
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, Seen, ServiceSnapshot, Sighting, UnseenPod


class CounterStore(Protocol):
    """Windows, uid records and breakers. Each call is indivisible; StoreUnavailableError where there is no answer."""

    async def acquire(self, request: Acquire) -> Receipt:
        """Judge and charge one Pod in one step, all or nothing. A repeated uid is answered as before, uncharged.

        (A breaker that is known to be open refuses without asking: then a repeated uid is refused too.)
        """
        ...

    def book_later(self, request: Acquire) -> None:
        """Book a Pod once the store answers: it was admitted although `acquire` raised UncountedError."""
        ...

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Give back what `uid` was charged, once, while its bucket lives; True if anything was given back."""
        ...

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        """Charge each uid that is not known yet, past every limit, at its own time; return how many were not known."""
        ...

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        """Tell the breaker how some of the service's requests or Pods fared, in their order."""
        ...

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        """Return how a service stands; writes nothing. Where namespaces count apart, `namespace` even if it is idle."""
        ...

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        """Let interval boundaries pass: what an idle service's breaker owes to the time alone."""
        ...

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        """Say how the breaker was last known here, or came to be alone: `core/breaker/forks.py` says which holds."""
        ...

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the breaker as it is known here without asking anybody; None where it is not, as CLOSED never is."""
        ...

    def now_us(self) -> int:
        """Return the store's time, as near as it is known here: it is what views of breakers are by."""
        ...

    def last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the breaker as it was heard of last, however long ago, and not moved on; None where it never was."""
        ...


class SharedStore(CounterStore, Protocol):
    """What the guard asks besides of a store that other replicas count in, too."""

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        """Say whether a Pod was admitted, by whatever replica, and not refunded: then it may not be refused."""
        ...

    async def others_settled(self, plan: CounterPlan, *, afresh: bool) -> int:
        """Return how many other replicas have shown that they owe nothing under the plan's tag, since this one asked.

        `afresh`: this one asks for the first time since it last owed anything itself.
        """
        ...


class BreakerLedger(Protocol):
    """What only the one who leads tells breakers. As indivisible as the rest."""

    async def started(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        """Tell how Pods started, each uid once; what became of each, and what the breaker did."""
        ...

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        """Hear no quota events of these sources for ten minutes, nor any that they caused a moment ago.

        A source is as in `Acquire.event_source`, such as `controller:UID`: it has lost Pods that it now replaces.
        """
        ...

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        """Bring the breaker where the plan's `forcing` wants it, or out of a forcing that is no more.

        One that has not moved since `reset_at_us` is reset, once for that moment.
        """
        ...


class PodLedger(Protocol):
    """What a store remembers of Pods that were let in, held against what became of them. As indivisible as the rest."""

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        """Take what the watch shows of some Pods of a service; the same twice changes nothing."""
        ...

    async def overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        """Return Pods of the plan's tag that were charged so long ago and have not been seen yet, oldest first."""
        ...

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Give back what `uid` was charged, once, and its place among the live; True if anything was given back."""
        ...

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        """Wait no longer for these, and give nothing back but their places: they may have come to be and gone."""
        ...

    async def scopes(self, plan: CounterPlan) -> Sequence[str]:
        """Return the namespaces of a service that have live Pods in the store; "" where it counts as one."""
        ...

    async def live(self, plan: CounterPlan, scope: str, after: str = "") -> tuple[Sequence[str], str]:
        """Return uids of this cluster that stand as live and are not waited for, and what to ask after; "" at the end.

        Every uid that stands throughout comes at least once.
        """
        ...

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        """Say that all live Pods have been listed: what stands is enforced from now on, and for ten minutes."""
        ...

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        """Forget what the service's own windows counted up to `at_us`, or the one of `seconds`; True if anything.

        Once for a moment; where that is not remembered, a 64th of the window after it goes too.
        """
        ...
