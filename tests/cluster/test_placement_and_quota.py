"""Placement and quota end to end: the nodes on which Pods run, and how many are admitted when."""

from datetime import datetime, timedelta
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate

PLACEMENT = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: placed
  match: {namespaces: [placed]}
  failureMode: Closed
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [zone-b]}]
"""
QUOTA = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: counted
  match: {namespaces: [counted]}
  failureMode: Closed
  quota: {windows: [{window: 1m, hard: {pods: 3}}]}
"""


def deploy(installation: Installation, namespace: str, replicas: int) -> None:
    installation.plane.kubectl("create", "deployment", "web", "--image=i", f"--replicas={replicas}", "-n", namespace)


def list_running_pods(installation: Installation, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in installation.pods(namespace) if pod["status"].get("phase") == "Running"]


def test_deployment_is_scheduled_only_where_its_policy_allows(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, PLACEMENT, ["placed", "elsewhere"]) as installation:
        installation.wait_for_calls()
        deploy(installation, "placed", 5)
        deploy(installation, "elsewhere", 8)
        placed_pods = plane.wait(
            lambda: len(list_running_pods(installation, "placed")) == 5 and list_running_pods(installation, "placed"),
            "5 Pods to run",
        )
        other_pods = plane.wait(
            lambda: len(list_running_pods(installation, "elsewhere")) == 8 and installation.pods("elsewhere"),
            "8 Pods to run",
        )
        assert {pod["spec"]["schedulerName"] for pod in placed_pods} == {"podgate-scheduler"}
        assert {pod["metadata"]["labels"]["podgate.io/service"] for pod in placed_pods} == {"placed"}
        assert zones(plane, placed_pods) == {"zone-b"}
        assert {pod["spec"]["schedulerName"] for pod in other_pods} == {"default-scheduler"}
        assert zones(plane, other_pods) == {"zone-a", "zone-b"}, "the scheduler spreads what no policy places"


def zones(plane: ControlPlane, pods: list[dict[str, Any]]) -> set[str]:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in plane.api.get("/api/v1/nodes")["items"]}
    return {labels[pod["spec"]["nodeName"]]["topology.kubernetes.io/zone"] for pod in pods}


def test_pods_above_the_quota_are_denied_and_admitted_as_the_window_slides(
    plane: ControlPlane, identities: Identities
) -> None:
    with install_podgate(plane, identities.files, QUOTA, ["counted"]) as installation:
        installation.wait_for_calls()
        deploy(installation, "counted", 5)
        message = plane.wait(lambda: creation_failure(installation), "the ReplicaSet's condition to report the denial")
        assert "validate-closed.podgate.io" in message
        assert "QuotaExceeded: service counted: pods in 1m: hard 3, used 3, asked 1; could pass from " in message
        assert len(installation.pods("counted")) == 3
        status, answer = installation.create_pod("counted", "sixth")
        assert (status, answer["reason"]) == (429, "TooManyRequests")
        plane.wait(lambda: len(installation.pods("counted")) == 5, "the 4th and 5th Pod")
        created = sorted(
            datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in installation.pods("counted")
        )
        # The API server truncates times to seconds.
        assert created[3] - created[0] >= timedelta(seconds=59)
        assert not creation_failure(installation) or plane.wait(
            lambda: not creation_failure(installation), "the condition to be removed"
        )


def creation_failure(installation: Installation) -> str:
    """Return the ReplicaFailure message of the ReplicaSet."""
    [replica_set] = installation.plane.api.get("/apis/apps/v1/namespaces/counted/replicasets")["items"] or [
        {"status": {}}
    ]
    conditions = replica_set["status"].get("conditions", [])
    return next((condition["message"] for condition in conditions if condition["type"] == "ReplicaFailure"), "")
