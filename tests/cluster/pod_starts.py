"""Deployments whose Pods start or fail, and status updates in place of a kubelet."""

from datetime import UTC, datetime
from typing import Any

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.controlplane import ControlPlane

GOOD, BAD = "good", "bad"
"""Images: `report_starts` reports Pods of the first as running, and of the second as crashing."""

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


def list_ready(running: ControllerFixture, namespace: str, image: str = GOOD) -> list[dict[str, Any]]:
    """Return the Pods that are Ready and not terminating."""
    return [
        pod
        for pod in running.installation.pods(namespace)
        if _is_ready(pod)
        and "deletionTimestamp" not in pod["metadata"]
        and pod["spec"]["containers"][0]["image"] == image
    ]


def creation_failures(running: ControllerFixture, namespace: str) -> str:
    """Return the ReplicaFailure messages of ReplicaSets."""
    replica_sets = running.plane.api.get(f"{_APPS}/{namespace}/replicasets")["items"]
    conditions = [
        condition for replica_set in replica_sets for condition in replica_set["status"].get("conditions", [])
    ]
    return "\n".join(condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure")


def report_starts(running: ControllerFixture, namespace: str) -> None:
    """Write the status of unscheduled Pods as a kubelet does: the good image runs, the other one crashes."""
    for pod in running.installation.pods(namespace):
        has_status = bool(pod["status"].get("containerStatuses")) or "deletionTimestamp" in pod["metadata"]
        if not has_status and pod["spec"]["schedulerName"] == UNSCHEDULED["schedulerName"]:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
            status = _status(is_good=pod["spec"]["containers"][0]["image"] == GOOD)
            code, answer = running.plane.api.request("PATCH", path, {"status": status}, _MERGE)
            assert code in {200, 404}, answer


def _status(*, is_good: bool) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "imageID": "", "ready": is_good, "restartCount": 0 if is_good else 2}
    if is_good:
        state = {"state": {"running": {}}}
    else:
        last_state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        state = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": last_state}
    condition = {"type": "Ready", "status": str(is_good), "lastTransitionTime": _now()}
    return {"phase": "Running", "conditions": [condition], "containerStatuses": [{**container, **state}]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
