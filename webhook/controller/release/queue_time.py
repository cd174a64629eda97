"""Queue time: since when Pods wait by this process's clock, which no step of the store's clock moves."""

from webhook.ports import Clock, CounterStore

_STEP_US = 1_000_000
"""The store's time is estimated: Pods keep the order of their registration when the estimate becomes better."""
_SKEW_US = 5_000_000
"""How far the clocks of the leader and the API server may differ: creations are in seconds, and have no exact order."""


class QueueTime:
    """Translates moments of the store, which registers Pods, into those of the leader's clock, and back."""

    def __init__(self, clock: Clock, store: CounterStore) -> None:
        self._clock = clock
        self._store = store
        self._ahead_us = 0
        """How far the store's clock is ahead, when it was last found to be elsewhere."""

    def now_us(self) -> int:
        return self._clock.now_us()

    def find_own_us(self, store_us: int) -> int:
        """Return a moment of the store by the leader's clock."""
        return store_us - self._find_ahead_us()

    def find_store_us(self, own_us: int) -> int:
        """Return a moment of the leader's clock by that of the store."""
        return own_us + self._find_ahead_us()

    def find_since_us(self, registered_us: int, created_us: int) -> int:
        """Return since when a Pod waits that the store has registered, when it was created.

        Before its creation or in the future, the store's clock was wrong then, or is now.
        """
        since_us, now_us = self.find_own_us(registered_us), self._clock.now_us()
        is_right = not created_us or created_us - _SKEW_US <= since_us <= now_us + _SKEW_US
        return since_us if is_right else min(created_us, now_us)

    def _find_ahead_us(self) -> int:
        ahead_us = self._store.now_us() - self._clock.now_us()
        if abs(ahead_us - self._ahead_us) >= _STEP_US:
            self._ahead_us = ahead_us
        return self._ahead_us
