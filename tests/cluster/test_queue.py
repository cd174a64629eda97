"""Waiting Pods on a real control plane: released gold first, never above the limit, and all of them in the end."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controller_fixture import MEMORY, ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from webhook.core.admission.mutation import QUEUE_GATE

pytest_plugins = ("tests.redis_servers.fixtures",)

CLASSES = ("gold", "silver", "bronze")
HARD, PODS_OF_ONE = 6, 6
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {{name: shared, windows: [{{window: 4s, hard: {{pods: {HARD}}}}}], whenExceeded: Queue}}
defaults: {{quota: {{whenExceeded: Queue, queue: {{maxPods: 50}}}}}}
services:
""" + "".join(
    f"- {{name: {name}, match: {{namespaces: [queue-{name}-STORE]}}, pool: shared, slaClass: {name}}}\n"
    for name in CLASSES
)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"queue-{name}-{store}" for name in CLASSES]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


def deploy(plane: ControlPlane, namespace: str, replicas: int) -> None:
    labels = {"app": "waits"}
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": "waits", "namespace": namespace}
    plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**body, "template": template}}
    )


def is_gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ()))


def test_deployments_are_released_by_class_and_become_whole(running: ControllerFixture, store: str) -> None:
    """Watch the Pods of three Deployments that are created at once, three times what the pool admits in a window."""
    plane, spaces = running.plane, {name: f"queue-{name}-{store}" for name in CLASSES}
    for namespace in spaces.values():
        deploy(plane, namespace, PODS_OF_ONE)
    waited: dict[str, str] = {}
    released: list[set[str]] = []

    def all_run() -> bool:
        ungated: set[str] = set()
        pods = {name: running.installation.pods(namespace) for name, namespace in spaces.items()}
        for name, found in pods.items():
            for pod in found:
                uid = pod["metadata"]["uid"]
                if is_gated(pod):
                    waited[uid] = name
                elif uid in waited:
                    ungated.add(waited.pop(uid))
        if ungated:
            released.append(ungated)
        used = max(row["used"] for row in running.installation.servers[0].status()["pools"][0]["windows"])
        assert used <= HARD
        phases = [pod["status"]["phase"] for found in pods.values() for pod in found]
        return phases == ["Running"] * (PODS_OF_ONE * len(CLASSES))

    plane.wait(all_run, "all Pods to run")
    order = [name for step in released for name in sorted(step, key=CLASSES.index)]
    assert order == sorted(order, key=CLASSES.index), released
    assert order.count("bronze") >= 1
    assert sum(process.total("podgate_queue_released_total") for process in running.controllers) >= len(order)


def test_a_tenant_cannot_remove_the_gate(running: ControllerFixture, store: str) -> None:
    namespace = f"queue-gold-{store}"
    plane = running.plane

    def a_gated_pod() -> dict[str, Any] | None:
        status, _ = running.installation.create_pod(namespace, f"tenant-{time.monotonic_ns()}")
        assert status == 201
        return next((pod for pod in running.installation.pods(namespace) if is_gated(pod)), None)

    gated = plane.wait(a_gated_pod, "a Pod to wait")
    path = f"/api/v1/namespaces/{namespace}/pods/{gated['metadata']['name']}"
    patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    status, response = plane.api.request("PATCH", path, patch, "application/json-patch+json")
    assert (status, "podgate.io/quota" in response["message"]) == (403, True), response
    assert store in {MEMORY, "redis"}
