"""Durations of the stages of one half, added in batches: one by one they take longer than all other metrics."""

from collections import defaultdict
from collections.abc import Iterable
from operator import sub
from threading import Lock

from webhook.adapters.metrics.accumulators import STAGE_BOUNDS_SECONDS, Durations

_BATCH = 256
"""Reviews of one batch: about 0.2 ms."""


class StageDurations:
    """Histograms by stage. Reviews are added on the event loop; a scrape reads in a thread."""

    def __init__(self, stages: Iterable[str]) -> None:
        """Create the series of `stages`; further ones are created when they are seen."""
        self._series = defaultdict(_of_stage, {stage: _of_stage() for stage in stages})
        self._pending: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        self._lock = Lock()

    def replace(self, stage: str, series: Durations) -> None:
        """Use another series for a stage."""
        self._series[stage] = series

    def add(self, stages: tuple[str, ...], ends_ns: tuple[int, ...]) -> None:
        """Add a review: its stages, in order, and their ends after its start."""
        pending = self._pending.get(stages)
        if pending is None:
            pending = self._pending[stages] = []
        pending.append(ends_ns)
        if len(pending) >= _BATCH:
            self._count(stages, pending)

    def read(self) -> list[tuple[str, Durations]]:
        """Return each stage with its series."""
        for stages, pending in list(self._pending.items()):
            self._count(stages, pending)
        return list(self._series.items())

    def _count(self, stages: tuple[str, ...], pending: list[tuple[int, ...]]) -> None:
        with self._lock:
            batch = pending[:]
            del pending[: len(batch)]  # others may be appended meanwhile
            begins: Iterable[int] = [0] * len(batch)
            for stage, ends in zip(stages, zip(*batch, strict=True), strict=False):
                self._series[stage].add_all(list(map(sub, ends, begins)))
                begins = ends


def _of_stage() -> Durations:
    return Durations(STAGE_BOUNDS_SECONDS)
