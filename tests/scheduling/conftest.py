"""One cluster for all tests of this folder: nodes with exporters, a real Prometheus, the extender and its scheduler."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.kwok import node
from tests.cluster.load_balancer import LoadBalancers
from tests.cluster.processes import find_free_ports
from tests.monitoring.prometheus_server import PrometheusServer
from tests.scheduling.extender_server import (
    EXTENDER,
    NAMESPACE,
    NUMA_CRD,
    OTHER,
    PRIORITY_CLASSES,
    WAKE,
    WAKE_REQUESTS,
    ExtendedScheduler,
)
from tests.scheduling.metrics_api import kubelet_path, measure_node, start_metrics_server
from tests.scheduling.node_exporter import HOT_CORES, NodeExporters

RACK = "topology.kubernetes.io/rack"
NODES = {
    "cool": {"zone": "a", RACK: "a1"},
    "hot": {"zone": "a", RACK: "a1"},
    "warm-1": {"zone": "a", RACK: "a2"},
    "warm-2": {"zone": "b", RACK: "b1"},
}
STALE_SECONDS, FORGET_SECONDS = 12, 30
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 1s
  window: 4s
  decay: {{every: 2s}}
  staleAfter: {stale}s
  forgetAfter: {forget}s
  sources: [{{prometheus: {{url: "{url}"}}}}, {{requests: {{}}}}]
services:
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}, estimate: {{settle: 1s}}}}
- name: batch
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: batch}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{numa: Required}}
- name: near
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: near}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling:
    hot: {{cpu: 0.8}}
    score: {{cpu: 0.1, memory: 0, latency: 0, topology: 0.9}}
    near: {{to: {{matchLabels: {{app: anchor}}}}}}
- name: steady
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: steady}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}, estimate: {{settle: 1h}}}}
- name: pressed
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: pressed}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{pressure: {{memory: 0.1}}}}
- name: watched
  slaClass: gold
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: watched}}}}}}
  modes: {{scheduling: Audit}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}, estimate: {{settle: 1s}}}}
"""


@pytest.fixture(scope="package")
def exporters() -> Iterator[NodeExporters]:
    with NodeExporters(*NODES) as running:
        for name in NODES:
            running.set(name, cores=HOT_CORES if name == "hot" else 4.0)
        yield running


@pytest.fixture(scope="package")
def scheduler(exporters: NodeExporters) -> Iterator[ExtendedScheduler]:
    """Start everything, and wait until the load of all nodes is known."""
    without_scheduler = tuple(name for name in COMPONENTS if name != "kube-scheduler")
    with ControlPlane(components=without_scheduler, has_metrics=True) as plane:
        plane.apply(WAKE, NUMA_CRD, *PRIORITY_CLASSES)
        start_metrics_server(plane)
        plane.add_nodes(*(measure_node(node(name, **labels)) for name, labels in NODES.items()))
        plane.create_namespace(NAMESPACE)
        plane.create_namespace("podgate-system")
        plane.apply(WAKE_REQUESTS)
        plain = f"127.0.0.1:{find_free_ports(1)[0]}"
        extenders = {"job_name": "podgate-extender", "static_configs": [{"targets": [plain]}]}
        twice = [exporters.second_job, exporters.second_cadvisor_job]  # the load of a node is not added up
        jobs = [exporters.job, exporters.cadvisor_job, *twice, _kubelets(plane), extenders]
        prometheus = PrometheusServer(plane.processes, jobs)
        prometheus.start()
        policy = POLICY.format(url=prometheus.url, stale=STALE_SECONDS, forget=FORGET_SECONDS)
        with LoadBalancers() as balancers:
            extended = ExtendedScheduler(plane, policy, prometheus, balancers.open(), plain)
            extended.start()
            plane.wait(lambda: extended.is_hot("hot"), "the load of the hot node", "extender")
            yield extended


@pytest.fixture(scope="module")
def other(scheduler: ExtendedScheduler) -> Iterator[None]:
    """Run a second replica behind the same address."""
    scheduler.start_extender(OTHER)
    scheduler.balance(EXTENDER, OTHER)
    scheduler.plane.wait(lambda: scheduler.is_hot("hot", OTHER), "the load of the hot node", OTHER)
    yield
    scheduler.balance(EXTENDER)
    scheduler.stop_extender(OTHER)


def _kubelets(plane: ControlPlane) -> dict[str, Any]:
    """Return the scrape configuration of the kubelets' resource metrics."""
    target = f"127.0.0.1:{plane.kubelet_port}"
    configs = [
        {"targets": [target], "labels": {"__metrics_path__": kubelet_path(name), "node": name}} for name in NODES
    ]
    return {"job_name": "kubelet", "scrape_interval": "1s", "static_configs": configs}
