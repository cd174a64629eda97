"""Recorder of reviews and outcomes as events for `podgate replay`, in its own thread: no review waits for a disk."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from webhook.adapters.recorder.file import FullError, RecordFile
from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.reporting.replay_record import is_kept, make_labels_event, make_outcomes_event, make_pod_event
from webhook.ports import PartialObserver, Review, WatchReports
from webhook.support.condition import Condition

WAITING_MAX = 1024
"""Maximum number of waiting events, each review with its whole Pod: thousands per second. Further ones are dropped."""

_EVENTS_PER_WRITE_MAX = 128
_PAUSE_SECONDS = 0.25
_PATIENCE_SECONDS = 5.0  # a disk that hangs must not block the shutdown

Labels = Callable[[str], Mapping[str, str] | None]
_Line = Mapping[str, Any]


class _Asked(NamedTuple):
    """A waiting request; its line is encoded in the recorder's thread."""

    at_us: int
    request: Request
    labels: Mapping[str, str] | None
    annotations: tuple[str, ...]
    """The keys of the annotations that the policy reads."""


class Recorder(PartialObserver):
    """An Observer. With `sample_every` N it records every Nth pool, and every Nth service without a pool, completely.

    The choice depends only on their names, so every replica records the same quotas completely.

    Transitions are not recorded: a replay computes them. It has neither overrides nor an API server.
    """

    def __init__(
        self, path: Path, sample_every: int, bytes_max: int, reports: WatchReports, now_us: Callable[[], int]
    ) -> None:
        self._now_us = now_us
        self._file = RecordFile(path, bytes_max, sample_every, now_us())
        self._sample_every = sample_every
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._labels: Labels = _find_no_labels
        self._services: frozenset[str] | None = None
        self._hash = ""
        self._last_us, self._ahead_us = self._file.last_us, 0
        self._waiting: deque[_Asked | _Line] = deque()
        self._known: dict[str, Mapping[str, str]] = {}
        self._is_full = False
        self._written = self._lost = self._turned_away = 0  # only the thread uses the first two
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="recorder", daemon=True)
        self._thread.start()

    def watch_namespaces(self, labels: Labels) -> None:
        """Set the source of Namespace labels; without it the record has none."""
        self._labels = labels

    def on_reviewed(self, review: Review) -> None:
        request, decision = review.request, review.decision
        if decision.half is not Half.VALIDATE or request is None or not is_kept(request):
            return
        if not self._is_sampled(decision.service):
            return
        at_us = (review.started_ns + review.duration_ns) // 1000
        if decision.charge.receipt is not None:
            # Charges are counted by the store's clock; other events follow it.
            self._ahead_us = decision.charge.receipt.at_us - at_us
        labels = self._labels(request.namespace)
        self._enqueue(
            _Asked(self._convert_time(at_us + self._ahead_us), request, labels, decision.inputs.annotations_read)
        )

    def on_outcomes_recorded(self, service: str, outcomes: Sequence[Outcomes]) -> None:
        """Record outcomes that a breaker has recorded. Half of the queue is reserved for Pods."""
        if not self._is_sampled(service):
            return
        now_us = self._now_us() + self._ahead_us
        for outcome in outcomes:
            if len(self._waiting) < WAITING_MAX // 2:
                self._enqueue(make_outcomes_event(service, outcome, self._convert_time(now_us - outcome.age_us)))
            else:
                self._turned_away += 1

    def _is_sampled(self, service: str | None) -> bool:
        return self._sample_every == 1 or (self._services is not None and service in self._services)

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        self._services = _select_services(loaded.policy, self._sample_every) if self._sample_every > 1 else None
        if loaded.hash != self._hash:
            self._hash = loaded.hash
            at_us = self._convert_time(self._now_us() + self._ahead_us)
            self._enqueue({"at": at_us / 1_000_000, "recorded": {"policyHash": loaded.hash}})

    def _convert_time(self, now_us: int) -> int:
        """Return the current time of the record, which never goes back."""
        self._last_us = max(self._last_us, now_us - self._file.zero_us)
        return self._last_us

    def _enqueue(self, event: _Asked | _Line) -> None:
        if len(self._waiting) < WAITING_MAX and not self._is_full:
            self._waiting.append(event)
        else:
            self._turned_away += 1

    def counts(self) -> Mapping[str, int]:
        """Return the number of events by result: written or dropped."""
        return {"written": self._written, "dropped": self._lost + self._turned_away}

    def close(self) -> None:
        """Write the waiting events; give up after some seconds."""
        self._ending.set()
        self._thread.join(_PATIENCE_SECONDS)

    def _write_on(self) -> None:
        while not self._ending.wait(_PAUSE_SECONDS):
            self._write_all()
        self._write_all()
        self._file.close()

    def _write_all(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), _EVENTS_PER_WRITE_MAX)
            events = [self._waiting.popleft() for _ in range(count)]
            try:
                self._file.append([line for event in events for line in self._lines(event)])
            except FullError:
                self._is_full = True
                self._note_failure(count, "it has reached --record-max-bytes: nothing more is recorded")
            except Exception as error:  # noqa: BLE001  a thread that ended unnoticed would record nothing more
                self._note_failure(count, getattr(error, "strerror", None) or repr(error))
            else:
                self._written += count
                self._failure.leave()

    def _note_failure(self, lines: int, reason: str) -> None:
        self._lost += lines
        self._known.clear()  # labels of dropped lines are written again
        self._failure.enter(reason)

    def _lines(self, event: _Asked | _Line) -> Iterator[bytes]:
        time.sleep(0)  # release the interpreter to waiting reviews after each event
        if not isinstance(event, _Asked):
            yield _encode(event)
            return
        at_us, request, labels, annotations = event
        if labels is not None and self._known.get(request.namespace) != labels:
            self._known[request.namespace] = labels
            yield _encode(make_labels_event(request.namespace, labels, at_us))
        yield _encode(make_pod_event(request, at_us, annotations))


def _encode(event: _Line) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def _select_services(policy: Policy, every: int) -> frozenset[str]:
    """Return the services to record: those of the first 1/N of all pools and services, in the order of a hash."""
    tags = sorted({service.tag for service in policy.services}, key=lambda tag: (crc32(tag.encode()), tag))
    kept = set(tags[: -(-len(tags) // every)])
    return frozenset(service.name for service in policy.services if service.tag in kept)


def _find_no_labels(_: str) -> None:
    """Return None: no Namespace labels are known."""
