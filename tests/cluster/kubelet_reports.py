"""Statuses and Events of Pods in place of a kubelet, with its texts."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from tests.cluster.controlplane import ControlPlane

Json = dict[str, Any]

_MERGE = "application/merge-patch+json"
_numbers = count(1)
STARTED_SECONDS = 30
"""How long ago containers are said to have started."""


def moment(ago_seconds: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_path(plane: ControlPlane, namespace: str, app: str) -> str:
    """Return the path of the only Pod with a label `app`, once it has an address."""
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def found() -> str:
        items = plane.api.get(f"{pods}?labelSelector=app%3D{app}")["items"]
        return next((item["metadata"]["name"] for item in items if item["status"].get("podIP")), "")

    return f"{pods}/{plane.wait(found, f'a Pod of {app} to have an address')}"


def patch(plane: ControlPlane, path: str, document: Json) -> None:
    code, answer = plane.api.request("PATCH", path, document, _MERGE)
    assert code == 200, answer


def write(plane: ControlPlane, path: str, status: Json) -> Json:
    """Write a Pod's status, with the resources of its container: kwok rewrites a status without them.

    Return what is written.
    """
    spec = plane.api.get(path)["spec"]["containers"][0]
    containers = [
        {**container_status, "resources": spec.get("resources", {})}
        for container_status in status.get("containerStatuses", ())
    ]
    written = {**status, "containerStatuses": containers}
    patch(plane, f"{path}/status", {"status": written})
    return written


def write_again(plane: ControlPlane, path: str, uid: str, written: Json) -> None:
    """Write a status once more if kwok, which may be late on a busy machine, has started the Pod's container since."""

    def list_states(status: Json) -> list[Json]:
        return [container["state"] for container in status.get("containerStatuses", ())]

    pod = plane.api.get(path)
    if pod is not None and pod["metadata"]["uid"] == uid and list_states(pod["status"]) != list_states(written):
        patch(plane, f"{path}/status", {"status": written})


def make_waiting_status(reason: str, message: str = "", restarts: int = 0, last: Json | None = None) -> Json:
    """Return the status of a Pod whose container waits."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return _status("Running", state, restarts, last)  # not Pending: kwok would start it at once


def unready(restarts: int = 0) -> Json:
    """Return the status of a Pod whose container runs and is not ready."""
    return _status("Running", {"running": {"startedAt": moment(STARTED_SECONDS)}}, restarts)


def ready() -> Json:
    status = _status("Running", {"running": {"startedAt": moment(STARTED_SECONDS)}}, 0)
    status["containerStatuses"][0] |= {"ready": True, "started": True}
    for condition in status["conditions"]:
        condition |= {"status": "True", "reason": None, "message": None}
    return status


def make_last_state(exit_code: int, reason: str = "Error", message: str = "") -> Json:
    """Return how the last run of a container ended."""
    times = {"startedAt": moment(STARTED_SECONDS), "finishedAt": moment()}
    return {"exitCode": exit_code, "reason": reason, **times, **({"message": message} if message else {})}


def _status(phase: str, state: Json, restarts: int, last: Json | None = None) -> Json:
    container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": restarts, "state": state}
    if last is not None:
        container["lastState"] = {"terminated": last}
    text = {"reason": "ContainersNotReady", "message": "containers with unready status: [c]"}
    conditions = [{"type": name, "status": "False", **text} for name in ("Ready", "ContainersReady")]
    return {
        "phase": phase,
        "conditions": [*conditions, {"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [container],
    }


def event(plane: ControlPlane, path: str, reason: str, message: str, *, of_container: bool = False) -> None:
    """Create an Event of a kubelet about a Pod."""
    pod = plane.api.get(path)
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod["metadata"]["uid"]}
    body = {
        "metadata": {"name": f"{name}.{next(_numbers):x}", "namespace": namespace},
        "involvedObject": {**about, **({"fieldPath": "spec.containers{c}"} if of_container else {})},
        "type": "Normal" if reason in {"Started", "Pulled"} else "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        "firstTimestamp": moment(),
        "lastTimestamp": moment(),
        "count": 1,
    }
    code, answer = plane.api.request("POST", f"/api/v1/namespaces/{namespace}/events", body)
    assert code == 201, answer
