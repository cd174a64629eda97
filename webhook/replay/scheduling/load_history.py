"""Load history of a simulated node: constant between changes."""

from collections import deque

from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad
from webhook.core.scheduling.measured_load import Decay, average_with_decay, compute_deviation

RATE_SECONDS = 60.0
"""Range of `rate` in the queries for cpu."""


class LoadHistory:
    """The load of one node since time 0, and before it that of time 0."""

    def __init__(self, load: PodLoad) -> None:
        self._changes = deque([(0.0, load)])
        self.peak = load

    @property
    def current(self) -> PodLoad:
        return self._changes[-1][1]

    def add(self, at_seconds: float, load: PodLoad, sign: int) -> None:
        """Add a load from now on, or with `sign` -1 remove it. Times do not decrease."""
        cpu_millis, memory_bytes = self.current
        found = PodLoad(cpu_millis + sign * load.cpu_millis, memory_bytes + sign * load.memory_bytes)
        self._changes.append((at_seconds, found))
        self.peak = PodLoad(
            max(self.peak.cpu_millis, found.cpu_millis), max(self.peak.memory_bytes, found.memory_bytes)
        )

    def average(self, now_seconds: float, decay: Decay, window_seconds: float) -> PodLoad:
        """Return what a Prometheus source measures now: the decayed average of samples, `every_seconds` apart.

        A sample of cpu is the mean of the minute before it, as `rate` gives it. Times do not decrease.
        """
        self._forget(now_seconds - window_seconds - RATE_SECONDS)
        if len(self._changes) == 1:
            return self.current
        cpu, memory = self._list_samples(now_seconds, decay, window_seconds)
        return PodLoad(
            average_with_decay(cpu, now_seconds, decay) or 0.0, average_with_decay(memory, now_seconds, decay) or 0.0
        )

    def compute_deviation(self, now_seconds: float, decay: Decay, window_seconds: float) -> PodLoad:
        """Return the standard deviation of the same samples."""
        average = self.average(now_seconds, decay, window_seconds)
        if len(self._changes) == 1:
            return NO_LOAD
        samples = self._list_samples(now_seconds, decay, window_seconds)
        cpu, memory = (compute_deviation(*both, now_seconds, decay) for both in zip(samples, average, strict=True))
        return PodLoad(cpu, memory)

    def _forget(self, before_seconds: float) -> None:
        while len(self._changes) > 1 and self._changes[1][0] <= before_seconds:
            self._changes.popleft()

    def _list_samples(
        self, now_seconds: float, decay: Decay, window_seconds: float
    ) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        count = int(window_seconds // decay.every_seconds)
        times = [now_seconds - number * decay.every_seconds for number in range(count + 1)]
        memory = [(at, self._find_load(at).memory_bytes) for at in times]
        return [(at, self._compute_mean_cpu(at)) for at in times], memory

    def _find_load(self, at_seconds: float) -> PodLoad:
        return next((load for since, load in reversed(self._changes) if since <= at_seconds), self._changes[0][1])

    def _compute_mean_cpu(self, end_seconds: float) -> float:
        begin_seconds, total, until_seconds = end_seconds - RATE_SECONDS, 0.0, end_seconds
        for since_seconds, load in reversed(self._changes):
            from_seconds = max(since_seconds, begin_seconds)
            if from_seconds < until_seconds:
                total += load.cpu_millis * (until_seconds - from_seconds)
                until_seconds = from_seconds
        return (total + self._changes[0][1].cpu_millis * (until_seconds - begin_seconds)) / RATE_SECONDS
