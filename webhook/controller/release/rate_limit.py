"""Rate of releases: a bound per second, saved up over a short time."""

_SAVED_US_MAX = 250_000
"""Room is saved up over this time: rounds are not equally long."""


class ReleaseRateLimit:
    """At most `rate` releases per second, and those of 250 ms at once."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._most = max(1.0, rate * _SAVED_US_MAX / 1_000_000)
        self._room = self._most
        self._counted_us: int | None = None

    def compute_room(self, now_us: int) -> int:
        """Return how many Pods may be released now."""
        if self._counted_us is not None:
            gained = max(0, now_us - self._counted_us) * self._rate / 1_000_000
            self._room = min(self._most, self._room + gained)
        self._counted_us = now_us
        return max(0, int(self._room))

    def spend(self) -> None:
        """Note one release."""
        self._room -= 1
