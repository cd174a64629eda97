"""Stores of counters, breakers and uid records, and the clock."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.quota import (
    Acquire,
    AcquireGroup,
    Booking,
    Cost,
    CounterPlan,
    PoolPod,
    Receipt,
    Seen,
    ServiceSnapshot,
    Sighting,
    UnseenPod,
)


class Clock(Protocol):
    """Source of time."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch; never goes back."""
        ...


class CounterStore(Protocol):
    """Windows, uid records and breakers. Each call is atomic; StoreUnavailableError without an answer."""

    async def acquire(self, request: Acquire) -> Receipt:
        """Check and charge one Pod in one step, all or nothing. A repeated uid gets the same answer and no charge.

        A repetition confirms the charge: its maker may no longer withdraw it.

        (A breaker that is known to be open denies without asking the store: then a repeated uid is denied, too.)
        """
        ...

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Refund the charge of `uid`, once, while its bucket is live; True if anything was refunded."""
        ...

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        """Charge each unknown uid, past every limit, at its own time; return how many were unknown."""
        ...

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        """Record outcomes of the service's requests or Pods, in their order."""
        ...

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        """Return a snapshot of a service; writes nothing. If namespaces count apart, `namespace` is always included."""
        ...

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        """Apply the passage of time to breakers, including those of idle services."""
        ...

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        """Propose this replica's view of the breaker: `core/breaker/forks.py` decides whether it wins."""
        ...

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the locally known state of the breaker, without asking the store; None if unknown, or CLOSED."""
        ...

    def now_us(self) -> int:
        """Return the local estimate of the store's time, in which views of breakers are."""
        ...

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the last received state of the breaker, of any age and not advanced; None if there is none."""
        ...


class SharedStore(CounterStore, Protocol):
    """Additional operations of a store that several replicas share."""

    async def find_charged_us(self, request: Acquire) -> int | None:
        """Return when any replica charged a Pod: then it may not be denied. None if none did, or it was refunded.

        0 if the moment is not known. As in a repeated Acquire that confirms the charge, unless it is a `peek`.
        """
        ...

    async def withdraw(self, request: Acquire, charged_us: int | None) -> bool:
        """Undo the charge of an Acquire whose Pod was not admitted, before any later Acquire.

        `charged_us`: the store's time of the charge, None if it is not known. Nothing is undone if another call has
        confirmed the charge, or if the Pod has been seen. True if it was undone; a later `book` or `acquire` of the
        same uid then counts as its first.
        """
        ...

    async def count_settled_replicas(self, plan: CounterPlan, *, afresh: bool) -> int:
        """Return how many other replicas have reported, since the first request, that they owe the tag nothing.

        `afresh`: this is the first request since this replica last owed anything itself.
        """
        ...


class GroupCharges(Protocol):
    """Charges of Pods that are admitted together. Each call is atomic; StoreUnavailableError without an answer."""

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        """Check and charge all members, or none: the sum of what they ask for must fit.

        If some are charged already, the answer is a repeated one, and nothing is charged. A refund is of one member, by
        its uid.
        """
        ...


class BreakerLedger(Protocol):
    """Breaker operations of the leader only. Each call is atomic."""

    async def record_starts(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        """Record outcomes of Pod starts, each uid once; return the result of each, and the breaker's transitions."""
        ...

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        """Ignore quota events of these sources for ten minutes, and discard those already counted.

        A source is as in `Acquire.event_source`, such as `controller:UID`: it has lost Pods and replaces them.
        """
        ...

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        """Enter the state of the plan's `forcing`, or leave a forced state that has ended.

        A breaker without a transition since `reset_at_us` is reset, once for that moment.
        """
        ...


class PodLedger(Protocol):
    """Charged Pods, reconciled with the Pods in the cluster. Each call is atomic."""

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        """Apply sightings of Pods of a service; a repeated sighting changes nothing."""
        ...

    async def list_overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        """Return Pods of the plan's tag charged at least `age_us` ago and not seen since, oldest first."""
        ...

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Refund the charge of `uid`, once, and remove it from the live Pods; True if anything was refunded."""
        ...

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        """Stop waiting for these Pods, and remove them from the live Pods without a refund: they may have existed."""
        ...

    async def list_scopes(self, plan: CounterPlan) -> Sequence[str]:
        """Return the namespaces of a service that have live Pods in the store; "" where it counts as one."""
        ...

    async def list_live(self, plan: CounterPlan, scope: str, after: str = "") -> tuple[Mapping[str, Cost], str]:
        """Return this cluster's live Pods that are not waited for, and the next `after`, "" at the end.

        Each has the amounts by which it counts.

        Every uid that is live throughout is returned at least once.
        """
        ...

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        """Mark the list of live Pods as complete: limits on live Pods are enforced for the next ten minutes."""
        ...

    async def list_pool_live(self, plan: CounterPlan, after: str = "") -> tuple[Sequence[PoolPod], str]:
        """Return live Pods of the plan's pool, of this cluster and as `list_live` does, and the next `after`."""
        ...

    async def mark_pool_complete(self, plan: CounterPlan) -> None:
        """Mark the live Pods of the plan's pool as complete: limits on them are enforced for the next ten minutes."""
        ...

    async def drop_pool_pods(self, plan: CounterPlan, pods: Sequence[PoolPod]) -> None:
        """Remove these from the live Pods of the plan's pool, unless they count for another service now."""
        ...

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        """Reset the service's own windows up to `at_us`, or the one of `seconds`; True if they held anything.

        Once for each moment. If its record was lost, a repetition may also reset up to 1/64 of the window after it.
        """
        ...
