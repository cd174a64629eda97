"""How patient we are with the API server, and how long we wait before we ask again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """All times in one place."""

    inactivity_seconds: float = 70.0
    """A watch that brings nothing for so long is taken for dead: bookmarks come every 60 s."""
    request_seconds: float = 30.0
    """A list, and the beginning of a watch."""
    watch_seconds_min: int = 300
    watch_seconds_max: int = 600
    """How long the API server is asked to keep a watch; different each time, so that replicas do not meet."""
    refresh_seconds: float = 2.0
    look_seconds: float = 1.0
    cool_down_seconds: float = 1.0
    """A refresh that ended less than this ago is not repeated."""
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    longest_retry_after_seconds: float = 60.0
    healthy_seconds: float = 10.0
    """A watch that lasted so long ends the series of failures, and so does one that has brought something."""

    def watch_seconds(self) -> int:
        return random.randint(self.watch_seconds_min, self.watch_seconds_max)  # noqa: S311  spreads load, guards nothing


class Backoff:
    """Exponential, with jitter over the upper half: even the first pause differs between replicas."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_seconds(self, asked_seconds: float = 0.0) -> float:
        """Return how long to wait now; at least as long as the API server asked for, in bounds."""
        doubled = self._pace.first_pause_seconds * 2.0 ** min(self._failures, 30)
        pause = min(self._pace.longest_pause_seconds, doubled)
        self._failures += 1
        asked = min(asked_seconds, self._pace.longest_retry_after_seconds)
        return max(asked, pause / 2) + random.uniform(0, pause / 2)  # noqa: S311  spreads load, guards nothing
