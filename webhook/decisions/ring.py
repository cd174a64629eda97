"""Ring of the newest decision records of this server. An Observer: it encodes each review and keeps the bytes."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from webhook.core.admission.decision import Half, Verdict
from webhook.core.reporting.records.codec import EncodedRecord
from webhook.core.reporting.records.encoder import RecordEncoder
from webhook.core.reporting.records.packed import RecordOrigin
from webhook.ports import PartialObserver, Review

RECORDS_MAX = 10_000
BYTES_MAX = 12 << 20
PER_SECOND_MAX = 1000
BURST_MAX = 1000
"""Records that are made for long, and at once. A record takes 20,000 instructions, a mutating review without it
190,000: a burst of 10,000 made floods of reviews dearer."""

_NOT_HANDLED = frozenset({Verdict.UNMATCHED, Verdict.EXEMPT})
Labels = Callable[[str], Mapping[str, str] | None]


class DecisionRing(PartialObserver):
    """Keeps at most RECORDS_MAX records of BYTES_MAX; further ones replace the oldest."""

    def __init__(self, replica: str, records_max: int = RECORDS_MAX) -> None:
        self.on_record: Callable[[EncodedRecord], None] | None = None
        """Receives each record after it is kept."""
        self.labels: Labels = lambda _: None
        """Source of the labels of Namespaces."""
        self.failed = 0
        """Reviews that could not be recorded."""
        self.dropped = 0
        """Reviews above the rate."""
        self._replica = replica
        self._records_max = records_max
        self._records: deque[EncodedRecord] = deque()
        self._bytes = 0
        self._encoder = RecordEncoder()
        self._last_ms = self._number = 0
        self._room, self._room_ns = float(BURST_MAX), 0

    def __len__(self) -> int:
        return len(self._records)

    def newest_first(self) -> Iterator[EncodedRecord]:
        """Yield the records that are kept now, also if others are added meanwhile."""
        return reversed(tuple(self._records))

    def reviewed(self, review: Review) -> None:
        decision = review.decision
        if decision.half is Half.MUTATE and decision.verdict in _NOT_HANDLED:
            return  # such a Pod is recorded when it is validated: once is enough, where nothing is decided
        if not self._takes_room(review.started_ns):
            self.dropped += 1
            return
        try:
            self._add(review)
        except Exception:  # noqa: BLE001  a record that cannot be made must not fail the review
            self.failed += 1

    def _add(self, review: Review) -> None:
        request, decision = review.request, review.decision
        if request is None:
            return
        at_ns = review.started_ns + review.duration_ns
        at_ms = at_ns // 1_000_000
        if at_ms > self._last_ms:
            self._last_ms, self._number = at_ms, 0
        else:  # identifiers never go back, also if the clock does
            self._number += 1
        trace_id = "" if review.trace is None else review.trace.span.trace_id
        origin = RecordOrigin(
            self._last_ms, self._number, self._replica, at_ns, review.stages, review.ends_ns, trace_id
        )
        kept = self._encoder.encode(decision, request, origin, self.labels(decision.namespace))
        records = self._records
        records.append(kept)
        self._bytes += kept.size
        while len(records) > self._records_max or self._bytes > BYTES_MAX:
            self._bytes -= records.popleft().size
        if self.on_record is not None:
            self.on_record(kept)

    def _takes_room(self, now_ns: int) -> bool:
        if now_ns > self._room_ns:
            gained = (now_ns - self._room_ns) * (PER_SECOND_MAX / 1_000_000_000)
            self._room, self._room_ns = min(float(BURST_MAX), self._room + gained), now_ns
        if self._room < 1:
            return False
        self._room -= 1
        return True
