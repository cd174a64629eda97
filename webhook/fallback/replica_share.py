"""ReplicaShare: this replica's share of each limit while the store may lack admissions."""

from collections.abc import Sequence

from webhook.core.ledger.replica_share import ReplicaShareLedger
from webhook.core.quota import Acquire, CounterPlan, Holder, Receipt, ServiceSnapshot, Use
from webhook.ports import Clock, SharedStore


class ReplicaShare:
    """Share of replica number `ordinal`, from 0, of `replicas`.

    Take the store's figures only while it knows every admission.
    """

    def __init__(self, store: SharedStore, clock: Clock, replicas: int, ordinal: int) -> None:
        self._store = store
        self._clock = clock
        self._ledger = ReplicaShareLedger(replicas, ordinal)
        self.others = replicas - 1
        """How many other replicas there are."""

    def divide(self, replicas: int, ordinal: int) -> None:
        """Divide the remaining quota among this many replicas from now on."""
        self.others = replicas - 1
        self._ledger.set_replicas(replicas, ordinal, self._clock.now_us())

    def acquire(self, request: Acquire, now_us: int) -> Receipt:
        """Judge one Pod by the share and, unless it only peeks, count it."""
        return self._ledger.acquire(request, now_us, self._store.now_us() - now_us)

    def release(self, request: Acquire, counted_at_us: int) -> None:
        """Uncount a Pod that was counted at `counted_at_us`, by this replica's clock."""
        self._ledger.give_back(request, counted_at_us, self._clock.now_us())

    def learn(self, request: Acquire, receipt: Receipt) -> None:
        """Take the figures of an answer to an Acquire."""
        self._ledger.record_reply(request.plan, request.team or request.namespace, receipt.used, self._clock.now_us())

    def take(self, plan: CounterPlan, snapshot: ServiceSnapshot) -> None:
        """Take all figures of a service."""
        now_us = self._clock.now_us()
        self._ledger.record_members(plan, snapshot.pool, now_us)
        for scope, uses in (snapshot.uses or {"": ()}).items():  # counted per namespace, and nothing counted yet
            self._ledger.record_reply(plan, scope, _list_used(plan, (*uses, *snapshot.pool)), now_us)

    async def refresh(self, plan: CounterPlan) -> None:
        """Take all figures of a service from the store."""
        self.take(plan, await self._store.snapshot(plan))

    def forget(self, tag: str) -> None:
        """Reset the charges counted under a tag: the store knows them now."""
        self._ledger.forget(tag)

    def sweep(self) -> None:
        """Forget charges that no longer count."""
        self._ledger.sweep(self._clock.now_us())


def _list_used(plan: CounterPlan, uses: Sequence[Use]) -> tuple[int, ...]:
    """Return the used amount of each of the plan's limits, in their order; 0 for a limit that `uses` lacks."""
    by_holder = {of: iter([use.used for use in uses if use.of is of]) for of in Holder}
    return tuple(next(by_holder[of], 0) for of, _, _ in plan.limits)
