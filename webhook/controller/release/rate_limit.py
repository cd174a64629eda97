"""Rates of releases, and of the Pods of one service that are tried in vain: bounds over a short time."""

from collections import Counter
from collections.abc import Set as AbstractSet

_SAVED_US_MAX = 250_000
"""Room is saved up over this time: rounds are not equally long."""

_REFUSALS_MAX, _REFUSALS_US = 32, 100_000
"""How many Pods of a service are tried in vain in this time: each costs a call of the store."""
_PASS_US_MIN = 1_000_000
"""As long as the retry of Pods for which no better moment is known: within it, all of few lanes are tried anyway."""


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


def compute_pass_us(lanes: int) -> int:
    """Return how long a Pod that does not fit leaves the turn to others of its service: until all may be tried."""
    pass_us = lanes * _REFUSALS_US // _REFUSALS_MAX
    return pass_us if pass_us > _PASS_US_MIN else 1


class RefusalRateLimit:
    """Services of which enough Pods were tried that did not fit: others take their turn."""

    def __init__(self) -> None:
        self._refusals = Counter[str]()
        self._counted_us = 0
        self.reached: AbstractSet[str] = frozenset()

    def begin(self, now_us: int) -> None:
        """Count anew if the time is over."""
        if now_us - self._counted_us >= _REFUSALS_US:
            self._refusals, self._counted_us, self.reached = Counter(), now_us, frozenset()

    def note(self, service: str) -> None:
        """Note one refusal."""
        self._refusals[service] += 1
        if self._refusals[service] == _REFUSALS_MAX:
            self.reached |= {service}
