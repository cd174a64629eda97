"""A HorizontalPodAutoscaler by a real metrics-server scales a Deployment with shares: its split is exact at rest."""

from collections.abc import Iterator

import pytest

from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controller_fixture import MEMORY, ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.kubelet_reports import patch
from tests.cluster.shares import NODES, Workload, build_policy, two_kinds_of_nodes
from tests.scheduling.metrics_api import USED_CPU, measure_node, start_metrics_server
from tests.timeouts import HANG_SECONDS

NAMESPACE = "autoscaled"
SCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
TARGET_MILLIS = 500
REPLICAS_MIN, REPLICAS_MAX = 3, 12
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": REPLICAS_MAX, "periodSeconds": 1}]}


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerFixture]:
    """Install Podgate with one server in a cluster with metrics of its Pods."""
    identities = Identities.create(tmp_path_factory.mktemp("identities"))
    nodes, policy = [measure_node(found) for found in NODES], build_policy({"web": [NAMESPACE]})
    with ControlPlane(callers=identities.callers, has_metrics=True) as plane:
        plane.apply(*stand_in_service())
        start_metrics_server(plane)
        with (
            two_kinds_of_nodes(plane, nodes),
            controller_fixture(plane, identities, policy, [NAMESPACE], MEMORY) as fixture,
        ):
            yield fixture


def create_autoscaler(workload: Workload) -> None:
    target = {"type": "AverageValue", "averageValue": f"{TARGET_MILLIS}m"}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name},
        "minReplicas": REPLICAS_MIN,
        "maxReplicas": REPLICAS_MAX,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE},
    }
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": workload.name}}
    status, answer = workload.running.plane.api.request("POST", SCALERS, {**kind, "spec": spec})
    assert status == 201, answer


def use(workload: Workload, names: list[str], millis: int) -> None:
    """Let each of these Pods use that much of a cpu; the others use nearly nothing."""
    for name in names:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        patch(workload.running.plane, path, {"metadata": {"annotations": {USED_CPU: f"{millis}m"}}})


def wait_for_replicas(workload: Workload, replicas: int) -> None:
    """Wait until the autoscaler wants as many Pods, and all of them are ready."""
    workload.replicas = replicas
    workload.wait(HANG_SECONDS)
    assert workload.describe() == ""
    assert workload.list_slots() == [*range(1, replicas + 1)]


def test_a_deployment_that_an_autoscaler_scales_by_real_metrics_is_divided_exactly_at_rest(
    running: ControllerFixture,
) -> None:
    workload = Workload(running, "Deployment", NAMESPACE, "web", REPLICAS_MIN)
    workload.create()
    workload.wait()
    loaded = [pod["metadata"]["name"] for pod in workload.list_pods()]
    use(workload, loaded, 4000)
    create_autoscaler(workload)
    wait_for_replicas(workload, REPLICAS_MAX)
    use(workload, loaded, 10)
    wait_for_replicas(workload, REPLICAS_MIN)
