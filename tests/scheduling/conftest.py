"""One cluster for all tests of this folder: nodes with exporters, a real Prometheus, the extender and its scheduler."""

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.kwok import node
from tests.cluster.load_balancer import LoadBalancers
from tests.monitoring.prometheus_server import PrometheusServer
from tests.scheduling.extender_server import NAMESPACE, NUMA_CRD, WAKE, ExtendedScheduler
from tests.scheduling.node_exporter import NodeExporters

NODES = ("cool", "hot", "warm-1", "warm-2")
STALE_SECONDS = 6
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 1s
  window: 4s
  decay: {{every: 2s}}
  staleAfter: {stale}s
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
- name: steady
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: steady}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}, estimate: {{settle: 1h}}}}
- name: watched
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: watched}}}}}}
  modes: {{scheduling: Audit}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}}}
"""


@pytest.fixture(scope="package")
def exporters() -> Iterator[NodeExporters]:
    with NodeExporters(*NODES) as running:
        for name in NODES:
            running.set(name, cores=60.0 if name == "hot" else 4.0)
        yield running


@pytest.fixture(scope="package")
def scheduler(exporters: NodeExporters) -> Iterator[ExtendedScheduler]:
    """Start everything, and wait until the load of all nodes is known."""
    with ControlPlane(components=tuple(name for name in COMPONENTS if name != "kube-scheduler")) as plane:
        plane.apply(WAKE, NUMA_CRD)
        plane.add_nodes(*(node(name) for name in NODES))
        plane.create_namespace(NAMESPACE)
        prometheus = PrometheusServer(plane.processes, [exporters.job])
        prometheus.start()
        policy = POLICY.format(url=prometheus.url, stale=STALE_SECONDS)
        with LoadBalancers() as balancers:
            extended = ExtendedScheduler(plane, policy, prometheus, balancers.open())
            extended.start()
            plane.wait(lambda: extended.is_hot("hot"), "the load of the hot node", "extender")
            yield extended
