"""Metrics of the policy's rollout that only the leader knows."""

from collections.abc import Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.family import Family
from webhook.core.rollout.changes import RolloutChange, RolloutChangeReason
from webhook.core.rollout.state import RolloutState
from webhook.core.rollout.symptoms import SymptomReading


class RolloutLeaderMetrics:
    """The gauges have no value in a process that does not lead."""

    def __init__(self) -> None:
        self._changes = Totals(families.ROLLOUT_CHANGES)
        self.totals = (self._changes,)
        self._state: RolloutState | None = None
        self._wished = ""
        self._readings: Sequence[SymptomReading] = ()

    def begin(self) -> None:
        """Start the counters at 0, so that the first change is an increase."""
        for reason in RolloutChangeReason:
            self._changes.add(str(reason), count=0)

    def count_change(self, change: RolloutChange) -> None:
        """Count a change."""
        self._changes.add(str(change.reason))

    def set_state(self, state: RolloutState, wished: str, readings: Sequence[SymptomReading]) -> None:
        """Set the state, the hash of the wished policy, and the symptoms of the candidate."""
        self._state, self._wished, self._readings = state, wished, readings

    def end(self) -> None:
        """Remove the gauges: another process leads."""
        self._state, self._readings = None, ()

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        state, readings = self._state, self._readings
        degraded = state is not None and state.holds_back(self._wished)
        known = [reading for reading in readings if reading.is_above is not None]
        return [
            (families.ROLLOUT_DEGRADED, [((), float(degraded))] if state is not None else []),
            (families.ROLLOUT_SYMPTOM, [((str(found.symptom),), found.percent / 100) for found in known]),
            (
                families.ROLLOUT_THRESHOLD,
                [((str(found.symptom),), found.threshold_percent / 100) for found in readings],
            ),
        ]
