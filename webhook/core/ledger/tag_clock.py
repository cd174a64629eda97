"""Monotonic clock of one tag, rebased if the store's own clock stays behind it.

Charges keep their moment: a rebase changes the reading of the clock, not stored times. A step forward frees at most
what its length would have freed anyway; a step back makes time stand still, for `PATIENCE_US` at most.
"""

from msgspec import Struct

BEHIND_US = 2_000_000
"""A clock that is no further behind catches up by itself."""

PATIENCE_US = 10_000_000


class TagClock(Struct):
    """`now` converts a reading of the store's clock to the tag's time; `shown` converts a moment back.

    `last_us` is the newest time of a write, `behind_since_us` the first reading that was far behind it.
    """

    last_us: int = 0
    offset_us: int = 0
    behind_since_us: int | None = None

    def now(self, reading_us: int) -> int:
        return max(reading_us + self.offset_us, self.last_us)

    def observe(self, reading_us: int) -> None:
        """Take the reading of a write: detect that the clock is behind, and rebase it if that persists."""
        behind_us = self.last_us - (reading_us + self.offset_us)
        if behind_us <= BEHIND_US:
            if self.behind_since_us is not None:
                self.behind_since_us, self.last_us = None, self.now(reading_us)
        elif self.behind_since_us is None or reading_us < self.behind_since_us:
            self.behind_since_us = reading_us
        elif reading_us - self.behind_since_us >= PATIENCE_US:
            self.offset_us += behind_us
            self.behind_since_us = None

    def shown(self, at_us: int) -> int:
        """Convert a moment to the store's clock; 0 stands for none."""
        return at_us and at_us - self.offset_us
