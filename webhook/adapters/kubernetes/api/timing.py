"""Timeouts and delays of requests to the API server."""

import random
from dataclasses import dataclass

from webhook.support.backoff import Backoff


@dataclass(frozen=True, slots=True)
class ApiTiming:
    """Timeouts and delays, in seconds."""

    inactivity_seconds: float = 70.0
    """A watch that receives nothing for this long is closed: bookmarks arrive every 60 s."""
    request_seconds: float = 30.0
    """Timeout of a list, and of opening a watch."""
    watch_seconds_min: int = 300
    watch_seconds_max: int = 600
    """`timeoutSeconds` of a watch, chosen at random between the two so that replicas do not reconnect in step."""
    refresh_seconds: float = 2.0
    look_seconds: float = 1.0
    cool_down_seconds: float = 1.0
    """No refresh is repeated within this time after its end."""
    first_pause_seconds: float = 0.5
    pause_seconds_max: float = 30.0
    retry_after_seconds_max: float = 60.0
    healthy_seconds: float = 10.0
    """A watch that lasted this long, or that received an event, resets the backoff."""

    def draw_watch_seconds(self) -> int:
        return random.randint(self.watch_seconds_min, self.watch_seconds_max)  # noqa: S311  spreads load, guards nothing

    def make_backoff(self) -> Backoff:
        """Return the backoff between attempts of one request."""
        return Backoff(
            self.first_pause_seconds,
            self.pause_seconds_max,
            requested_max_seconds=self.retry_after_seconds_max,
        )
