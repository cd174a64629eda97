"""Clock port."""

from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch; never goes back."""
        ...
