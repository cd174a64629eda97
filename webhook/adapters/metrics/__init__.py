"""Metrics observer: counts reviews and events, and renders them for Prometheus through the OpenTelemetry SDK."""

from webhook.adapters.metrics.label_sets import ProcessRole
from webhook.adapters.metrics.metrics_observer import CONTENT_TYPE, OPENMETRICS, Metrics

__all__ = ["CONTENT_TYPE", "OPENMETRICS", "Metrics", "ProcessRole"]
