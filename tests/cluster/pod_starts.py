"""Deployments whose Pods start or fail, their breakers, and a substitute for some kubelets."""

from datetime import UTC, datetime
from typing import Any

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.controlplane import ControlPlane

GOOD, BAD = "good", "bad"
"""Images: what is to become of their Pods where `report` speaks for the kubelet."""

UNSCHEDULED: dict[str, Any] = {"schedulerName": "nobody"}
_APPS = "/apis/apps/v1/namespaces"
_MERGE = "application/merge-patch+json"


def deploy(
    plane: ControlPlane, namespace: str, name: str, replicas: int, image: str = GOOD, kind: str = "", **spec: Any
) -> None:
    """Apply a Deployment; `kind` is its strategy."""
    containers = [{"name": "c", "image": image}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    strategy = {"strategy": {"type": kind}} if kind else {}
    metadata = {"name": name, "namespace": namespace}
    plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {**body, **strategy}})


def scale(plane: ControlPlane, namespace: str, name: str, replicas: int) -> None:
    plane.kubectl("scale", f"deployment/{name}", f"--replicas={replicas}", "-n", namespace)


def ready(running: ControllerFixture, namespace: str, image: str = GOOD) -> list[dict[str, Any]]:
    """Return the Pods that are Ready and are to stay."""
    return [
        pod
        for pod in running.found.pods(namespace)
        if _is_ready(pod)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["spec"]["containers"][0]["image"] == image
    ]


def refusals(running: ControllerFixture, namespace: str) -> str:
    """Return what ReplicaSets say of the Pods that they could not create."""
    found = running.plane.api.get(f"{_APPS}/{namespace}/replicasets")["items"]
    conditions = [one for replica_set in found for one in replica_set["status"].get("conditions", [])]
    return "\n".join(one["message"] for one in conditions if one["type"] == "ReplicaFailure")


def report(running: ControllerFixture, namespace: str) -> None:
    """Say of Pods that no scheduler wants what a kubelet would: those of the good image run, the others crash."""
    for pod in running.found.pods(namespace):
        is_told = bool(pod["status"].get("containerStatuses")) or "deletionTimestamp" in pod["metadata"]
        if not is_told and pod["spec"]["schedulerName"] == UNSCHEDULED["schedulerName"]:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
            status = _status(is_good=pod["spec"]["containers"][0]["image"] == GOOD)
            code, answer = running.plane.api.request("PATCH", path, {"status": status}, _MERGE)
            assert code in {200, 404}, answer


def _status(*, is_good: bool) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "imageID": "", "ready": is_good, "restartCount": 0 if is_good else 2}
    if is_good:
        state = {"state": {"running": {}}}
    else:
        last = {"terminated": {"exitCode": 1, "reason": "Error"}}
        state = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": last}
    condition = {"type": "Ready", "status": str(is_good), "lastTransitionTime": _now()}
    return {"phase": "Running", "conditions": [condition], "containerStatuses": [{**container, **state}]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
