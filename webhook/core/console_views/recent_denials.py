"""Recent denials: how many Pods of each service were denied in each of the last minutes, from decision records."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

MINUTES = 15
_MINUTE_SECONDS = 60
_MINUTE_US = 60_000_000


class DeniedRecord(Struct, frozen=True, rename="camel"):
    """What is read of a decision record."""

    id: str
    at: datetime
    service: str = ""
    dry_run: bool = False


class DeniedPage(Struct, frozen=True):
    """Records, newest first; `next` begins the next page."""

    decisions: tuple[DeniedRecord, ...]
    next: str | None = None
    error: str | None = None


class RecentDenials:
    """Counts by minute and service. A record that is added again counts once."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, int]] = {}
        self._seen: dict[str, int] = {}

    def add(self, records: Iterable[DeniedRecord], now_us: int) -> None:
        """Count records, and forget what is older than the last minutes."""
        oldest = _find_oldest_minute(now_us)
        self._counts = {minute: counts for minute, counts in self._counts.items() if minute >= oldest}
        self._seen = {name: minute for name, minute in self._seen.items() if minute >= oldest}
        for record in records:
            minute = int(record.at.timestamp()) // _MINUTE_SECONDS
            if minute < oldest or record.id in self._seen:
                continue
            self._seen[record.id] = minute
            if not record.dry_run:
                counts = self._counts.setdefault(minute, {})
                counts[record.service] = counts.get(record.service, 0) + 1

    def list_counts(self, now_us: int) -> dict[str, tuple[int, ...]]:
        """Return the denials of each minute, the oldest first, of the services that have some."""
        oldest = _find_oldest_minute(now_us)
        counts = [self._counts.get(minute, {}) for minute in range(oldest, oldest + MINUTES)]
        services = sorted({service for found in counts for service in found})
        return {service: tuple(found.get(service, 0) for found in counts) for service in services}


def _find_oldest_minute(now_us: int) -> int:
    return now_us // _MINUTE_US - MINUTES + 1
