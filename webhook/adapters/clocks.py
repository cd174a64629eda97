"""Time, three ways: the server's own, the wall's, and one that only moves when told to."""

import time


class SystemClock:
    """Starts at the wall clock and then follows the monotonic one: counters never see a step of the wall clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        return (self._offset_ns + time.monotonic_ns()) // 1000


class WallClock:
    """What the rest of the world calls now: tokens and certificates expire by it."""

    def now_us(self) -> int:
        return time.time_ns() // 1000


class VirtualClock:
    """Stands still until it is set, for `replay` and `review`."""

    def __init__(self, at_us: int = 0) -> None:
        self._at_us = at_us

    def now_us(self) -> int:
        return self._at_us

    def set(self, at_us: int) -> None:
        """Move to `at_us`; never back."""
        self._at_us = max(self._at_us, at_us)
