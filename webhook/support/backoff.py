"""Backoff: exponential delays between the retries of one operation, with an upper bound and jitter."""

import random
from collections.abc import Callable
from math import inf

_DOUBLINGS_MAX = 30


class Backoff:
    """Computes delays in seconds; reads no clock and does not sleep.

    The first delay is `first_seconds`. Each further delay is twice the last, up to `longest_seconds`.
    Jitter takes up to the share `jitter` (0 to 1) off a delay at random, so that replicas do not retry in step.
    A delay that the server requested (Retry-After) is a minimum, itself limited to `requested_max_seconds`.
    """

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        *,
        jitter: float = 0.5,
        requested_max_seconds: float = inf,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._jitter = jitter
        self._requested_max_seconds = requested_max_seconds
        self._uniform = uniform
        self._failures = 0

    def next_seconds(self, requested_seconds: float = 0.0) -> float:
        """Return the delay before the next attempt, and count one more failure."""
        doubled = self._first_seconds * 2.0 ** min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        delay = min(self._longest_seconds, doubled)
        spread = delay * self._jitter
        requested = min(requested_seconds, self._requested_max_seconds)
        return max(requested, delay - spread) + self._uniform() * spread

    def reset(self) -> None:
        """Start again from the first delay: the operation succeeded."""
        self._failures = 0
