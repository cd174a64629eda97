"""One tag's time: it never goes back, and is rebased where the store's own clock stays behind it.

Whatever was counted keeps its moment: a rebase moves what the clock reads, not what was written. A step forward frees
at most what its own length would have freed; a step back makes time stand still, for `PATIENCE_US` at the longest.
"""

from msgspec import Struct

BEHIND_US = 2_000_000
"""A clock that is this little behind catches up by itself."""

PATIENCE_US = 10_000_000


class TagClock(Struct):
    """`now` is the tag's time for a reading of the store's clock; `shown` turns a moment back into the latter's.

    `last_us` is the newest moment that anything was written at, `behind_since_us` the first reading far behind it.
    """

    last_us: int = 0
    offset_us: int = 0
    behind_since_us: int | None = None

    def now(self, reading_us: int) -> int:
        return max(reading_us + self.offset_us, self.last_us)

    def observe(self, reading_us: int) -> None:
        """Take a reading of whoever may write: notice that the clock is behind, and rebase it when it stays so."""
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
        """Return a moment by the store's clock; 0 stands for none."""
        return at_us and at_us - self.offset_us
