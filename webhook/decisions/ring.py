"""Ring of the newest decision records of this server. An Observer: it encodes each review and keeps the bytes."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from webhook.core.admission.decision import Half, Verdict
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.decisions.encoder import RecordEncoder
from webhook.ports import PartialObserver, Review

RECORDS_MAX = 10_000
RECORDS_BYTES_MAX = 12 << 20
RECORDS_PER_SECOND_MAX = 1000
BURST_RECORDS_MAX = 1000
"""Sustained rate of records, and their number in a burst: further reviews are not recorded, so a flood costs little."""

_APART_NS = 1_000_000_000 // RECORDS_PER_SECOND_MAX
_CLOCK_SET_BACK_NS = 2 * BURST_RECORDS_MAX * _APART_NS
"""Records come this much before they are due only if the clock was set back."""

_NOT_HANDLED = frozenset({Verdict.UNMATCHED, Verdict.EXEMPT})
Labels = Callable[[str], Mapping[str, str] | None]


class DecisionRing(PartialObserver):
    """Keeps a limited number and size of records; further ones replace the oldest."""

    def __init__(self, replica: str, records_max: int = RECORDS_MAX) -> None:
        self.on_record: Callable[[EncodedRecord], None] | None = None
        """Receives each record after it is kept."""
        self.labels: Labels = lambda _: None
        """Source of the labels of Namespaces."""
        self.failed = 0
        """Reviews that could not be recorded."""
        self.dropped = 0
        """Reviews above the rate."""
        self._records_max = records_max
        self._records: deque[EncodedRecord] = deque()
        self._bytes = 0
        self._encoder = RecordEncoder(replica)
        self._ahead_max_ns = (BURST_RECORDS_MAX - 1) * _APART_NS
        self._due_ns = 0
        """When the next record is due at the sustained rate. It may come earlier by a burst."""

    def __len__(self) -> int:
        return len(self._records)

    def newest_first(self) -> Iterator[EncodedRecord]:
        """Yield the records that are kept now, even if others are added meanwhile."""
        return reversed(tuple(self._records))

    def on_reviewed(self, review: Review) -> None:
        decision = review.decision
        if decision.verdict in _NOT_HANDLED and decision.half is Half.MUTATE:
            return  # the validating half records such a Pod: one record is enough where nothing is decided
        at_ns = review.started_ns + review.duration_ns
        ahead_ns = self._due_ns - at_ns
        if ahead_ns > self._ahead_max_ns and ahead_ns < _CLOCK_SET_BACK_NS:
            self.dropped += 1
            return
        self._due_ns = (self._due_ns if 0 < ahead_ns < _CLOCK_SET_BACK_NS else at_ns) + _APART_NS
        request = review.request
        if request is None:
            return
        try:
            kept = self._encoder.encode(review, request, self.labels(decision.call.namespace))
        except Exception:  # noqa: BLE001  a record that cannot be made must not fail the review
            self.failed += 1
            return
        records = self._records
        records.append(kept)
        self._bytes += kept.size
        while len(records) > self._records_max or self._bytes > RECORDS_BYTES_MAX:
            self._bytes -= records.popleft().size
        if self.on_record is not None:
            self.on_record(kept)
