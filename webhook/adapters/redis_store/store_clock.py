"""StoreClock: Redis' time, estimated between its answers."""

from collections.abc import Callable

from webhook.ports import Clock


class StoreClock:
    """Microseconds. `time_us` replaces Redis' time: a replay has its own."""

    def __init__(self, clock: Clock, time_us: Callable[[], int] | None) -> None:
        self._clock = clock
        self._time_us = time_us
        self.ahead_us: int | None = None
        """How far Redis' clock is ahead of this process's; None before its first answer, and in a replay."""

    def now_us(self) -> int:
        return self._time_us() if self._time_us else self._clock.now_us() + (self.ahead_us or 0)

    def given_us(self) -> int | bool:
        """Return the time that the script uses instead of Redis' own, or False."""
        return self._time_us() if self._time_us else False

    def learn(self, now_us: int) -> None:
        """Take Redis' time from an answer."""
        if self._time_us is None:
            self.ahead_us = now_us - self._clock.now_us()
