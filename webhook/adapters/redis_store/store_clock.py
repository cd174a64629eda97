"""StoreClock: Redis' time, estimated between its answers."""

import math
from collections.abc import Callable

from webhook.ports import Clock

_SPAN_US = 10_000_000
_LATE_US = 5_000_000
"""Maximum age of an answer: the connection fails before."""


class StoreClock:
    """Microseconds. `time_us` replaces Redis' time: a replay has its own.

    A late answer has an old time. So the estimate is that of the fastest answer within the last 10 to 20 s: a Pod that
    is admitted without Redis is booked at its own time, and counts as long as others.
    """

    def __init__(self, clock: Clock, time_us: Callable[[], int] | None) -> None:
        self._clock = clock
        self._time_us = time_us
        self.ahead_us: int | None = None
        """How far Redis' clock is ahead of this process's; None before its first answer, and in a replay."""
        self._last_us = self._best_us = 0
        """The same by the last answer, and by the fastest answer of this span."""
        self._earliest_us = math.inf
        """Lower bound of how far Redis' clock is ahead, unless it was set back."""
        self._span_ends_us = 0

    def now_us(self) -> int:
        return self._time_us() if self._time_us else self._clock.now_us() + (self.ahead_us or 0)

    def earliest_us(self) -> int:
        """Return a time that Redis' clock has certainly reached, even if it was set before its last answer."""
        return self._time_us() if self._time_us else self._clock.now_us() + self._last_us

    def get_replay_time(self) -> int | bool:
        """Return the time that the script uses instead of Redis' own, or False."""
        return self._time_us() if self._time_us else False

    def learn(self, now_us: int) -> None:
        """Take Redis' time from an answer."""
        at_us = self._clock.now_us()
        ahead_us = self._last_us = now_us - at_us
        if self._earliest_us <= ahead_us <= self._best_us and at_us < self._span_ends_us:
            return  # true of most answers
        self._adjust(at_us, ahead_us)

    def _adjust(self, at_us: int, ahead_us: int) -> None:
        known_us = self.ahead_us
        if self._time_us is not None:
            return
        if known_us is None or ahead_us < self._earliest_us:  # its clock was set back
            known_us = self._best_us = ahead_us
            self._span_ends_us = at_us + _SPAN_US
        elif at_us >= self._span_ends_us:
            known_us, self._best_us = max(self._best_us, ahead_us), ahead_us
            self._span_ends_us = at_us + _SPAN_US
        else:
            self._best_us = ahead_us
            known_us = max(known_us, ahead_us)
        self.ahead_us, self._earliest_us = known_us, known_us - _LATE_US
