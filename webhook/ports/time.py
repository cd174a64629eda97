"""Time."""

from typing import Protocol


class Clock(Protocol):
    """Time."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch; never goes back."""
        ...
