"""Observed Pods of one service as they are now: how many live, how long their starts took, and which failed."""

from collections import Counter
from collections.abc import Iterator
from statistics import median_high

from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.start_outcome import StartResult, find_cause, is_gated, judge_start, read_created_us
from webhook.core.quota.pod_cost import compute_cost, format_amount

_COUNTED = ("pods", "requests.cpu", "requests.memory")
_ENDED = frozenset({"Succeeded", "Failed"})
_SECOND_US = 1_000_000


class ObservedPods:
    """Pods of one service; a start longer than `deadline_us` has failed."""

    def __init__(self, deadline_us: int, now_us: int) -> None:
        self._deadline_us = deadline_us
        self._now_us = now_us
        self._live: Counter[str] = Counter()
        self._starts_us: list[int] = []
        self._failed: Counter[StartResult] = Counter()
        self._pending = 0

    def add(self, pod: Pod) -> None:
        """Add a Pod. ValueError: an unreadable quantity."""
        if pod.status.phase not in _ENDED and pod.metadata.deletion_timestamp is None:
            self._live.update(compute_cost(pod, _COUNTED))
        created_us = read_created_us(pod)
        if is_gated(pod) or not created_us:
            return
        outcome = judge_start(pod, created_us, self._deadline_us, self._now_us)
        if outcome is None and self._now_us - created_us > self._deadline_us:
            self._failed[find_cause(pod)] += 1
        elif outcome is None:
            self._pending += 1
        elif outcome.result is StartResult.OK:
            self._starts_us.append(outcome.latency_us)
        elif outcome.result is not None:
            self._failed[outcome.result] += 1

    def describe(self) -> Iterator[str]:
        """Yield what is seen of them, for people."""
        amounts = [f"{format_amount(name, self._live[name])} {name}" for name in _COUNTED if self._live[name]]
        yield f"live now: {', '.join(amounts) or 'no Pods'}"
        if self._starts_us:
            usual, longest = median_high(self._starts_us), max(self._starts_us)
            yield (
                f"starts of the Pods that exist: {len(self._starts_us)} well, usual {usual // _SECOND_US}s,"
                f" longest {longest // _SECOND_US}s"
            )
        failed = [f"{count} {cause}" for cause, count in self._failed.most_common()]
        failed += [f"{self._pending} pending"] if self._pending else []
        if failed:
            yield f"starts not done: {', '.join(failed)}"
