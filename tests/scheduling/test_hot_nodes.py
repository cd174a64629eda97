"""Hot nodes on a real kube-scheduler, with load from a real Prometheus: refused in words, and used once they cool."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.kwok import node
from tests.monitoring.prometheus_server import PrometheusServer
from tests.scheduling.extender_server import SCHEDULER, WAKE, ExtendedScheduler
from tests.scheduling.node_exporter import NodeExporters

NAMESPACE = "shop"
NODES = ("cool", "hot")
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 1s
  window: 4s
  decay: {{every: 2s}}
  staleAfter: 10s
  sources: [{{prometheus: {{url: "{url}"}}}}, {{requests: {{}}}}]
services:
- name: web
  match: {{namespaces: [shop]}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{hot: {{cpu: 0.8}}, estimate: {{settle: 1s}}}}
"""


@pytest.fixture(scope="module")
def exporters() -> Iterator[NodeExporters]:
    with NodeExporters(*NODES) as running:
        running.set("hot", cores=60.0)
        running.set("cool", cores=4.0)
        yield running


@pytest.fixture(scope="module")
def scheduler(exporters: NodeExporters) -> Iterator[ExtendedScheduler]:
    with ControlPlane(components=tuple(name for name in COMPONENTS if name != "kube-scheduler")) as plane:
        plane.apply(WAKE)
        plane.add_nodes(*(node(name) for name in NODES))
        plane.create_namespace(NAMESPACE)
        prometheus = PrometheusServer(plane.processes, [exporters.job])
        prometheus.start()
        extended = ExtendedScheduler(plane, POLICY.format(url=prometheus.url))
        extended.start()
        plane.wait(lambda: extended.nodes()["hot"]["cpuShare"] is not None, "the load of the hot node", "extender")
        yield extended


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"podgate.io/service": "web"}},
        "spec": {"schedulerName": SCHEDULER, "containers": [container], **spec},
    }


def node_of(plane: ControlPlane, name: str) -> str:
    found = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}") or {}
    return str(found.get("spec", {}).get("nodeName", ""))


def test_hot_node_is_refused_in_the_pods_own_event_and_used_once_it_cools(
    scheduler: ExtendedScheduler, exporters: NodeExporters
) -> None:
    plane = scheduler.plane
    plane.wait(lambda: scheduler.nodes()["hot"]["cpuShare"] > 0.85, "the hot node", "extender", timeout_seconds=60)
    plane.apply(pod("free"), pod("bound", nodeSelector={"kubernetes.io/hostname": "hot"}))
    assert plane.wait(lambda: node_of(plane, "free"), "the free Pod's node") == "cool"

    def message() -> str:
        conditions = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/bound")["status"].get("conditions", [])
        return next((one["message"] for one in conditions if one.get("reason") == "Unschedulable"), "")

    said = plane.wait(message, "the refusal")
    assert said.startswith("0/2 nodes are available: 1 node(s) above the cpu hot threshold 0.8, 1 node(s) didn't match")
    exporters.set("hot", cores=2.0)
    assert plane.wait(lambda: node_of(plane, "bound"), "the Pod to be bound", timeout_seconds=60) == "hot"
    assert "podgate_extender_wakes_total 1.0" in scheduler.metrics()
