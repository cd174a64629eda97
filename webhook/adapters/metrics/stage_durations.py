"""Durations of one half's reviews and their stages, added in batches, which is cheaper."""

from collections import defaultdict
from collections.abc import Iterable
from operator import sub
from threading import Lock

from webhook.adapters.metrics.accumulators import STAGE_BOUNDS_SECONDS, Durations

BATCH = 256
"""Reviews of one batch. A larger one would delay the next review."""

Timed = tuple[int, tuple[int, ...]]
"""How long a review took, and the end of each of its stages after its start, in nanoseconds."""


class StageDurations:
    """Histograms of a half. Reviews are added on the event loop; a scrape reads in a thread."""

    def __init__(self, stages: Iterable[str]) -> None:
        """Create the series of `stages`; further ones are created when they are seen."""
        self.reviews = Durations()
        self._series = defaultdict(_make_durations, {stage: _make_durations() for stage in stages})
        self._pending: dict[tuple[str, ...], list[Timed]] = {}
        self._lock = Lock()

    def replace(self, stage: str, series: Durations) -> None:
        """Use another series for a stage."""
        self._series[stage] = series

    def pending(self, stages: tuple[str, ...]) -> list[Timed]:
        """Return the list to which reviews with these stages, in order, are appended; `count` it at BATCH."""
        return self._pending.setdefault(stages, [])

    def read(self) -> list[tuple[str, Durations]]:
        """Return each stage with its series."""
        for stages in list(self._pending):
            self.count(stages)
        return list(self._series.items())

    def count(self, stages: tuple[str, ...]) -> None:
        """Add the pending reviews to the histograms."""
        pending = self._pending[stages]
        with self._lock:
            batch = pending[:]
            del pending[: len(batch)]  # others may be appended meanwhile
            if not batch:
                return
            took_ns, ends_ns = zip(*batch, strict=True)
            self.reviews.add_all(list(took_ns))
            begins: Iterable[int] = [0] * len(batch)
            for stage, ends in zip(stages, zip(*ends_ns, strict=True), strict=False):
                self._series[stage].add_all(list(map(sub, ends, begins)))
                begins = ends


def _make_durations() -> Durations:
    return Durations(STAGE_BOUNDS_SECONDS)
