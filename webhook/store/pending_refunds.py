"""PendingRefunds: refunds of Pods that the store may have charged although they were not admitted."""

from collections.abc import Collection

from webhook.core.quota import CounterPlan
from webhook.store.backlog import ServiceKey

REFUNDS_MAX = 10_000
"""Per service; beyond it a wrong charge leaves with its window."""


class PendingRefunds:
    """Refunds by service and uid.

    A refund is due `delay_seconds` after the store is first seen to answer again: until then a call whose connection
    failed may still be carried out.
    """

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._due_at: dict[ServiceKey, dict[str, float | None]] = {}
        """Time by the loop's clock, by uid; None while the store is unavailable."""
        self._plans: dict[ServiceKey, CounterPlan] = {}

    def __bool__(self) -> bool:
        return bool(self._due_at)

    def keys(self) -> Collection[ServiceKey]:
        """Return the services that have any."""
        return self._due_at.keys()

    def plan(self, key: ServiceKey) -> CounterPlan:
        """Return the newest plan of a service that has any."""
        return self._plans[key]

    def add(self, plan: CounterPlan, uid: str) -> bool:
        """Add a refund; False if there are too many."""
        refunds = self._due_at.setdefault(plan.key, {})
        if len(refunds) >= REFUNDS_MAX:
            return False
        refunds[uid] = None
        self._plans[plan.key] = plan
        return True

    def remove(self, key: ServiceKey, uid: str) -> None:
        """Remove a refund: it is done, or the Pod was admitted after all."""
        self._due_at.get(key, {}).pop(uid, None)

    def due(self, key: ServiceKey, now: float) -> list[str]:
        """Return the uids that are due. Call this only while the store answers: it starts the delay of new refunds.

        A service without refunds is forgotten.
        """
        refunds = self._due_at.get(key)
        if not refunds:
            self._due_at.pop(key, None)
            self._plans.pop(key, None)
            return []
        due = [uid for uid, moment in refunds.items() if moment is not None and moment <= now]
        for uid, moment in refunds.items():
            if moment is None:
                refunds[uid] = now + self._delay_seconds
        return due
