"""Clocks: monotonic server clock, wall clock, and a virtual clock set by its user."""

from time import monotonic_ns, time_ns


class SystemClock:
    """Clock that starts at the wall clock's time and then follows the monotonic clock, unaffected by clock steps."""

    def __init__(self) -> None:
        self._offset_ns = time_ns() - monotonic_ns()

    def now_us(self) -> int:
        return (self._offset_ns + monotonic_ns()) // 1000


class WallClock:
    """Wall clock, by which tokens and certificates expire."""

    def now_us(self) -> int:
        return time_ns() // 1000


class VirtualClock:
    """Clock that changes only by `set`, for `replay` and `review`."""

    def __init__(self, at_us: int = 0) -> None:
        self._at_us = at_us

    def now_us(self) -> int:
        return self._at_us

    def set(self, at_us: int) -> None:
        """Advance to `at_us`; an earlier time is ignored."""
        self._at_us = max(self._at_us, at_us)
