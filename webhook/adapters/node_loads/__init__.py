"""Sources of the load of nodes: Prometheus and the metrics API."""

from webhook.adapters.node_loads.metrics_api import MetricsApiLoads
from webhook.adapters.node_loads.prometheus import PrometheusLoads
from webhook.adapters.node_loads.prometheus_api import PrometheusApi, Series

__all__ = ["MetricsApiLoads", "PrometheusApi", "PrometheusLoads", "Series"]
