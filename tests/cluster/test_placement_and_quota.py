"""Placement and quota end to end: the nodes on which Pods run, and how many are admitted when."""

from datetime import datetime, timedelta
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed

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


def deploy(found: Installation, namespace: str, replicas: int) -> None:
    found.plane.kubectl("create", "deployment", "web", "--image=i", f"--replicas={replicas}", "-n", namespace)


def running(found: Installation, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in found.pods(namespace) if pod["status"].get("phase") == "Running"]


def test_deployment_is_scheduled_only_where_its_policy_allows(plane: ControlPlane, identities: Identities) -> None:
    with installed(plane, identities.files, PLACEMENT, ["placed", "elsewhere"]) as found:
        found.wait_for_calls()
        deploy(found, "placed", 5)
        deploy(found, "elsewhere", 8)
        placed = plane.wait(lambda: len(running(found, "placed")) == 5 and running(found, "placed"), "5 Pods to run")
        others = plane.wait(lambda: len(running(found, "elsewhere")) == 8 and found.pods("elsewhere"), "8 Pods to run")
        assert {pod["spec"]["schedulerName"] for pod in placed} == {"podgate-scheduler"}
        assert {pod["metadata"]["labels"]["podgate.io/service"] for pod in placed} == {"placed"}
        assert zones(plane, placed) == {"zone-b"}
        assert {pod["spec"]["schedulerName"] for pod in others} == {"default-scheduler"}
        assert zones(plane, others) == {"zone-a", "zone-b"}, "the scheduler spreads what no policy places"


def zones(plane: ControlPlane, pods: list[dict[str, Any]]) -> set[str]:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in plane.api.get("/api/v1/nodes")["items"]}
    return {labels[pod["spec"]["nodeName"]]["topology.kubernetes.io/zone"] for pod in pods}


def test_pods_above_the_quota_are_denied_and_admitted_as_the_window_slides(
    plane: ControlPlane, identities: Identities
) -> None:
    with installed(plane, identities.files, QUOTA, ["counted"]) as found:
        found.wait_for_calls()
        deploy(found, "counted", 5)
        message = plane.wait(lambda: refusal(found), "the ReplicaSet's condition to say why Pods are missing")
        assert "validate-closed.podgate.io" in message
        assert "QuotaExceeded: service counted: pods in 1m: hard 3, used 3, asked 1; could pass from " in message
        assert len(found.pods("counted")) == 3
        status, answer = found.create_pod("counted", "sixth")
        assert (status, answer["reason"]) == (429, "TooManyRequests")
        plane.wait(lambda: len(found.pods("counted")) == 5, "the 4th and 5th Pod")
        created = sorted(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in found.pods("counted"))
        # The API server cuts its times to whole seconds.
        assert created[3] - created[0] >= timedelta(seconds=59)
        assert not refusal(found) or plane.wait(lambda: not refusal(found), "the condition to go")


def refusal(found: Installation) -> str:
    """Return what the ReplicaSet says of the Pods that it could not create."""
    [replica_set] = found.plane.api.get("/apis/apps/v1/namespaces/counted/replicasets")["items"] or [{"status": {}}]
    conditions = replica_set["status"].get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "ReplicaFailure"), "")
