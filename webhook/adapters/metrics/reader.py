"""Exposition of the metrics: an OpenTelemetry reader that also collects from a producer, and its two text formats.

The producer is like the specification's MetricProducer.

Observable instruments do not suffice: the SDK never forgets an attribute set, and after 2,000 sets it puts the rest
under `otel_metric_overflow`, but services, namespaces and policy hashes change. It also has no observable histogram,
and it collects each point in more steps.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as TextMetric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Durations, Row
from webhook.adapters.metrics.family import Family, MetricKind
from webhook.adapters.metrics.label_sets import ZeroLines

_SCOPE = "podgate"
_openmetrics_text: Callable[..., bytes] = openmetrics.generate_latest  # the library declares no types here
_bound_text: Callable[[float], str] = floatToGoString

Series = Iterable[tuple[tuple[str, ...], Durations]]


class Exposition:
    """All metrics of a process as text: its instruments, the series of `rows` and `histograms`, and `process_*`."""

    def __init__(
        self,
        version: str,
        in_flight: Callable[[], int] | None,
        rows: Callable[[], Iterable[tuple[Family, Iterable[Row]]]],
        histograms: Callable[[], Iterable[tuple[Family, Series]]],
    ) -> None:
        self._rows = rows
        self._histograms = histograms
        self._zeros = ZeroLines({})
        self._recorded: Mapping[Family, frozenset[tuple[str, ...]]] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        provider = MeterProvider(
            [ProducingReader(self._registry, self._produce)],
            Resource({"service.name": "podgate"}),
            shutdown_on_exit=False,
        )
        meter = provider.get_meter(_SCOPE)
        family, build = families.BUILD_INFO, [Observation(1, {"version": version})]
        meter.create_observable_gauge(family.name, [lambda _: build], "", family.help)
        if in_flight is not None:
            family = families.IN_FLIGHT
            meter.create_observable_gauge(family.name, [lambda _: [Observation(in_flight())]], "", family.help)

    def start_at_zero(self, zeros: ZeroLines) -> None:
        """Show these series at 0 until they are recorded."""
        self._zeros = zeros

    def render(self) -> bytes:
        """Return Prometheus' text format."""
        return self._zeros.add_to(generate_latest(self._registry), self._recorded)

    def render_openmetrics(self) -> bytes:
        """Return OpenMetrics' text format, which has exemplars. All names are plain, so that none needs escaping."""
        exemplars = dict(_exemplars(self._histograms()))
        source = _WithExemplars(self._registry, exemplars)
        return self._zeros.add_to(_openmetrics_text(source, openmetrics.ALLOWUTF8), self._recorded)

    def _produce(self) -> Sequence[Metric]:
        rows = [(family, list(points)) for family, points in self._rows()]
        self._recorded = {family: frozenset(labels for labels, _ in points) for family, points in rows}
        histograms = [make_histogram(family, series) for family, series in self._histograms()]
        return [*histograms, *(make_number_metric(family, points) for family, points in rows if points)]


_SampleKey = tuple[str, frozenset[tuple[str, str]]]


class _WithExemplars(NamedTuple):
    """The metrics of a registry, whose samples get their exemplars: the exporter passes none on."""

    registry: CollectorRegistry
    exemplars: Mapping[_SampleKey, Exemplar]

    def collect(self) -> Iterator[TextMetric]:
        with_exemplars = {name for name, _ in self.exemplars}
        for metric in self.registry.collect():
            if f"{metric.name}_bucket" in with_exemplars:
                metric.samples = [self._add_exemplar(sample) for sample in metric.samples]
            yield metric

    def _add_exemplar(self, sample: Sample) -> Sample:
        return sample._replace(exemplar=self.exemplars.get((sample.name, frozenset(sample.labels.items()))))


def _exemplars(histograms: Iterable[tuple[Family, Series]]) -> Iterator[tuple[_SampleKey, Exemplar]]:
    """Yield the exemplars of buckets by the name and the labels of the sample."""
    for family, series in histograms:
        for values, durations in series:
            limits = [_bound_text(bound) for bound in (*durations.bounds_seconds, math.inf)]
            for index, exemplar in list(durations.exemplars.items()):
                labels = {**dict(zip(family.labels, values, strict=True)), "le": limits[index]}
                ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
                yield (
                    (f"{family.name}_bucket", frozenset(labels.items())),
                    Exemplar(ids, exemplar.seconds, exemplar.at_seconds),
                )


class ProducingReader(PrometheusMetricReader):
    """Reader that adds the metrics of `produce` to each collection of the meter provider's own instruments."""

    def __init__(self, registry: CollectorRegistry, produce: Callable[[], Sequence[Metric]]) -> None:
        super().__init__(disable_target_info=True, scope_info_enabled=False, registry=registry)
        self._produce = produce

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        instruments = metrics_data.resource_metrics
        produced = ScopeMetrics(InstrumentationScope(_SCOPE), self._produce(), "")
        whole = MetricsData([*instruments, ResourceMetrics(instruments[0].resource, [produced], "")])
        super()._receive_metrics(whole, timeout_millis, **kwargs)


def make_number_metric(family: Family, rows: Iterable[Row]) -> Metric:
    """Return a counter or gauge with its points. A row shorter than the family's labels omits the last ones."""
    points = [
        NumberDataPoint(
            attributes=dict(zip(family.labels, values, strict=False)),
            start_time_unix_nano=0,
            time_unix_nano=0,
            value=value,
        )
        for values, value in rows
    ]
    if family.kind is MetricKind.GAUGE:
        return Metric(family.name, family.help, "", Gauge(points))
    return Metric(family.name, family.help, "", Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True))


def make_histogram(family: Family, series: Series) -> Metric:
    """Return a histogram with its points, without minimum and maximum: the text format shows neither."""
    points = []
    for values, durations in series:
        counts, sum_seconds = durations.read()
        points.append(
            HistogramDataPoint(
                attributes=dict(zip(family.labels, values, strict=True)),
                start_time_unix_nano=0,
                time_unix_nano=0,
                count=sum(counts),
                sum=sum_seconds,
                bucket_counts=counts,
                explicit_bounds=durations.bounds_seconds,
                min=0.0,
                max=0.0,
            )
        )
    return Metric(family.name, family.help, "", Histogram(points, AggregationTemporality.CUMULATIVE))
