"""Metrics of the scheduler extender: its calls, the nodes that it refused, and its sources of load."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Durations, Row, Totals
from webhook.adapters.metrics.family import Family
from webhook.core.scheduling.extender_api import CallResult

VERBS = ("filter", "prioritize", "preempt")


class SchedulingMetrics:
    """Totals, gauges and durations of one extender; other processes export none."""

    def __init__(self) -> None:
        self._calls = Totals(families.EXTENDER_CALLS)
        self._refused = Totals(families.EXTENDER_REFUSED_NODES)
        self._errors = Totals(families.EXTENDER_SOURCE_ERRORS)
        self._wakes = Totals(families.EXTENDER_WAKES)
        self._wake_errors = Totals(families.EXTENDER_WAKE_ERRORS)
        self._unanswered = Totals(families.EXTENDER_WAKES_UNANSWERED)
        self._evicted = Totals(families.EXTENDER_RECORDS_EVICTED)
        wakes = self._wakes, self._wake_errors, self._unanswered
        self.totals = (self._calls, self._refused, self._errors, *wakes, self._evicted)
        self._durations: Mapping[str, Durations] = {}
        self._nodes: Callable[[], Mapping[str, int]] = dict
        self._services: Callable[[], Iterable[str]] = tuple
        self._waiting: Callable[[], int] | None = None
        self._read_seconds: Mapping[str, float] = {}
        self._took_seconds: Mapping[str, float] = {}

    def begin(
        self,
        nodes: Callable[[], Mapping[str, int]],
        services: Callable[[], Iterable[str]],
        waiting: Callable[[], int],
    ) -> None:
        """Export the metrics from now on. `nodes` counts the nodes by the source of their load, `waiting` the Pods."""
        self._nodes = nodes
        self._services = services
        self._waiting = waiting
        self._durations = {verb: Durations() for verb in VERBS}
        self._wakes.add(count=0)
        self._wake_errors.add(count=0)
        self._unanswered.add(count=0)
        self._evicted.add(count=0)
        for verb, result in product(VERBS, CallResult):
            self._calls.add(verb, result, count=0)

    def count_call(self, verb: str, result: CallResult, duration_ns: int) -> None:
        self._calls.add(verb, result)
        self._durations[verb].add(duration_ns)

    def count_refused(self, service: str, reason: str, count: int) -> None:
        self._refused.add(service, reason, count=count)

    def on_woken(self) -> None:
        """Count a wake of kube-scheduler."""
        self._wakes.add()

    def on_wake_failed(self) -> None:
        self._wake_errors.add()

    def count_unanswered_wakes(self, count: int) -> None:
        """Count Pods that no controller has woken."""
        self._unanswered.add(count=count)

    def count_evicted_record(self) -> None:
        """Count a scheduling record that was dropped for that of another Pod."""
        self._evicted.add()

    def open_source(self, source: str) -> None:
        self._errors.add(source, count=0)
        self._read_seconds = {**self._read_seconds, source: 0.0}

    def set_source_read(self, source: str, at_seconds: float, took_seconds: float) -> None:
        """Set when a source was read, in seconds since the Unix epoch, and how long that took."""
        self._read_seconds = {**self._read_seconds, source: at_seconds}
        self._took_seconds = {**self._took_seconds, source: took_seconds}

    def count_source_failure(self, source: str) -> None:
        self._errors.add(source)

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.EXTENDER_NODES, [((source,), float(count)) for source, count in self._nodes().items()]
        waiting: list[Row] = [] if self._waiting is None else [((), float(self._waiting()))]
        yield families.EXTENDER_WAITING_PODS, waiting
        yield families.EXTENDER_SERVICES, [((service,), 1.0) for service in self._services()]
        yield families.EXTENDER_SOURCE_AGE, [((source,), at) for source, at in self._read_seconds.items()]
        yield families.EXTENDER_REFRESH, [((source,), took) for source, took in self._took_seconds.items()]

    def histograms(self) -> Iterable[tuple[Family, list[tuple[tuple[str, ...], Durations]]]]:
        """Return the durations by verb; none before `begin`."""
        if self._durations:
            yield families.EXTENDER_DURATION, [((verb,), series) for verb, series in self._durations.items()]
