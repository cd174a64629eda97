"""Clock of a store that is stepped, while the leader's goes on."""

from webhook.adapters.clocks import VirtualClock


class SteppedClock(VirtualClock):
    """A clock that is `ahead_us` ahead of another one; the test may change that at any time."""

    def __init__(self, own: VirtualClock) -> None:
        super().__init__()
        self._own = own
        self.ahead_us = 0

    def now_us(self) -> int:
        return self._own.now_us() + self.ahead_us
