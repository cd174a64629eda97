"""Scheduling records of the Pods that kube-scheduler asked about most recently."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod
from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.node_selection import ServiceRules
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, SchedulingRecord, ScoreAttempt

PODS_MAX = 5_000


class SchedulingRecords:
    """One record for each Pod uid; a new Pod replaces the one that was asked about least recently."""

    def __init__(self, on_evicted: Callable[[], None], pods_max: int = PODS_MAX) -> None:
        self._on_evicted = on_evicted
        self._kept: LruCache[str, SchedulingRecord] = LruCache(pods_max)

    def __len__(self) -> int:
        return len(self._kept)

    def on_filtered(self, pod: Pod, service: ServiceRules, attempt: FilterAttempt) -> None:
        known = self._find_record(pod, service, attempt.at)
        self._keep(replace(known, attempts=known.attempts + 1, filter=attempt))

    def on_scored(self, pod: Pod, service: ServiceRules, attempt: ScoreAttempt) -> None:
        self._keep(replace(self._find_record(pod, service, attempt.at), score=attempt))

    def on_preempted(self, pod: Pod, service: ServiceRules, attempt: PreemptAttempt) -> None:
        self._keep(replace(self._find_record(pod, service, attempt.at), preempt=attempt))

    def on_bound(self, uid: str, node: str, at_seconds: float) -> None:
        """Record the node of a Pod, if its record is kept."""
        known = self._kept.get(uid)
        if known is not None:
            self._keep(replace(known, node=node, node_at=datetime.fromtimestamp(at_seconds, UTC)))

    def list_newest_first(self) -> Iterator[SchedulingRecord]:
        """Yield the records, the most recently used first."""
        return reversed(tuple(self._kept.values()))

    def _find_record(self, pod: Pod, service: ServiceRules, at: datetime) -> SchedulingRecord:
        """Return the record of a Pod, new or as it was, at the time of its newest call."""
        found, known = pod.metadata, self._kept.get(pod.metadata.uid)
        if known is None:
            return SchedulingRecord(found.uid, found.namespace, found.name, service.service, service.mode, at, at)
        return replace(known, service=service.service, mode=service.mode, at=at)

    def _keep(self, record: SchedulingRecord) -> None:
        if self._kept.keep(record.uid, record):
            self._on_evicted()
