"""A service with admitted and watched Pods, at a time that the test sets."""

from collections.abc import Sequence
from typing import Any

from webhook.core.ledger import observed_pods, operations
from webhook.core.ledger.tag_state import TagState
from webhook.core.quota import Acquire, Booking, CounterPlan, Receipt, Seen, ServiceSnapshot, Sighting, UnseenPod

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
NOW_US = 1_000_000 * SECOND_US
ONE = {"pods": 1}


class WatchedService:
    """The counters of one plan, with the operations of the webhook and of the watch."""

    def __init__(self, plan: CounterPlan, *, is_known: bool = True) -> None:
        self.plan = plan
        self.state = TagState()
        self.now_us = NOW_US
        if is_known:
            self.mark_complete()

    def ask(self, uid: str, cost: dict[str, int] = ONE, namespace: str = "shop", **more: Any) -> Receipt:
        request = Acquire(self.plan, namespace, uid, cost, f"controller:{uid}", name=f"{uid}-pod", **more)
        return operations.acquire(self.state, request, self.now_us)

    def observe(self, uid: str, cost: dict[str, int] = ONE, namespace: str = "shop", **more: Any) -> Seen:
        sighting = Sighting(namespace, f"{uid}-pod", uid, cost, **{"lives": True, "created_at_us": self.now_us, **more})
        return observed_pods.observe(self.state, self.plan, sighting, self.now_us)

    def gone(self, uid: str, namespace: str = "shop") -> Seen:
        return self.observe(uid, namespace=namespace, lives=False, created_at_us=0)

    def refund(self, uid: str) -> bool:
        return operations.refund(self.state, self.plan, uid, self.now_us)

    def book(self, uid: str, cost: dict[str, int] = ONE, at_us: int | None = None) -> bool:
        booking = Booking("shop", uid, cost, self.now_us if at_us is None else at_us, f"{uid}-pod")
        return operations.book(self.state, self.plan, booking, self.now_us)

    def stop_waiting(self, uid: str) -> None:
        observed_pods.stop_waiting(self.state, self.plan, uid, self.now_us)

    def list_overdue(self, age_us: int = 0, most: int = 100) -> Sequence[UnseenPod]:
        return observed_pods.overdue(self.state, self.plan, age_us, most, self.now_us)

    def mark_complete(self, *scopes: str) -> None:
        observed_pods.mark_complete(self.state, self.plan, scopes or ("",), self.now_us)

    def list_live(self, scope: str = "") -> set[str]:
        """Return the UIDs of the observed live Pods."""
        return set(observed_pods.live(self.state, self.plan, scope, self.now_us))

    def reset(self, at_us: int, seconds: int | None = None) -> bool:
        return observed_pods.reset(self.state, self.plan, at_us, seconds, self.now_us)

    def snapshot(self, namespace: str = "") -> ServiceSnapshot:
        return operations.snapshot(self.state, self.plan, self.now_us, namespace)

    def read_usage(self, namespace: str = "") -> list[int]:
        """Return the usage of each limit of the service: first of windows, then of live Pods."""
        return [use.used for use in self.snapshot().uses.get(namespace, ())]
