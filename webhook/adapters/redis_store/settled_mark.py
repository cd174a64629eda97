"""SettledMark: the statement of this replica, sent with each call, that the store knows all its admissions."""

import secrets
from collections.abc import Callable

from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.plans import PreparedPlan
from webhook.adapters.redis_store.store_clock import StoreClock


class SettledMark:
    """`owes` returns whether the store lacks admissions under a tag; None in a process that admits no Pods."""

    def __init__(self, clock: StoreClock, losses: LossDetector) -> None:
        self._clock = clock
        self._losses = losses
        self.replica = secrets.token_hex(4)
        """This process's name among the replicas."""
        self.owes: Callable[[str], bool] | None = None

    def of(self, planned: PreparedPlan) -> tuple[str, int, int] | bool:
        """Return the replica, the time, and when the counters that it knows were created; False if it owes anything.

        The time is never later than the store's: the answer that it is estimated from was sent before it was read.
        """
        if self.owes is None or self._clock.ahead_us is None or self.owes(planned.plan.tag):
            return False
        now_us = self._clock.earliest_us()
        return self.replica, now_us, self._losses.born_us(planned.keys.home, now_us)
