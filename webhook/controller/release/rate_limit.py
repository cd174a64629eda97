"""Rate limit of releases: a token bucket that bounds how many Pods are released per second."""

_SAVED_US = 250_000
"""Room of so long a time can be saved up: rounds are not equally long."""


class ReleaseRateLimit:
    """At most `rate` releases per second, and those of 250 ms at once."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._most = max(1.0, rate * _SAVED_US / 1_000_000)
        self._room = self._most
        self._counted_us: int | None = None

    def room(self, now_us: int) -> int:
        """Return how many Pods may be released now."""
        if self._counted_us is not None:
            gained = max(0, now_us - self._counted_us) * self._rate / 1_000_000
            self._room = min(self._most, self._room + gained)
        self._counted_us = now_us
        return max(0, int(self._room))

    def spend(self) -> None:
        """Note one release."""
        self._room -= 1
