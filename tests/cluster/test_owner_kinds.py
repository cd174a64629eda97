"""Services by kind of workload and end of namespace, and fields by a Pod's own, with Pods of real controllers."""

from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: jobs
  failureMode: Closed
  match: {namespaces: ["*-kinds"], ownerKinds: [Job]}
- name: deployments
  match: {namespaces: ["*-kinds"], ownerKinds: [Deployment]}
- name: rest
  match: {namespaces: ["*-kinds"]}
  placement:
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
    ifAbsent: [topologySpreadConstraints]
    tolerationsByQosClass:
      Burstable: [{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}]
      BestEffort: [{key: spot, operator: Exists}]
  resources: {container: {defaultRequestRatio: {cpu: 0.5}, defaultLimitRatio: {memory: 2}}}
"""
PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
OWN = {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
SPACE = "shop-kinds"
LABEL = "podgate.io/service"


def workload(kind: str, version: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": labels}
    metadata = {"name": kind.lower(), "namespace": SPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}


def services_by_app(installation: Installation) -> dict[str, str]:
    found = (pod["metadata"]["labels"] for pod in installation.pods(SPACE))
    return {labels["app"]: labels.get(LABEL, "") for labels in found if "app" in labels}


def test_kind_of_the_workload_is_that_of_its_controller(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, POLICY, [SPACE]) as installation:
        installation.wait_for_calls()
        plane.apply(
            workload("Deployment", "apps/v1", {"app": "deployment"}),
            workload("ReplicaSet", "apps/v1", {"app": "replicaset"}),
            workload("StatefulSet", "apps/v1", {"app": "statefulset"}, serviceName="s"),
            workload("Job", "batch/v1", {"app": "job"}),
        )
        plane.wait(lambda: len(services_by_app(installation)) == 4, "a Pod of each workload")
        job = plane.api.get(f"/apis/batch/v1/namespaces/{SPACE}/jobs/job")["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["uid"], "controller": True}
        forged = {"name": "forged", "labels": {"app": "forged"}, "ownerReferences": [owner]}
        resources = {"limits": {"cpu": "1"}, "requests": {"memory": "64Mi"}}
        spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        pod = {"metadata": forged, "spec": spec}
        status, created = plane.api.request(
            "POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", **pod}
        )
        assert status == 201, created
        assert created["metadata"]["labels"][LABEL] == "rest", "its owner is only what the tenant says"
        assert created["spec"]["containers"][0]["resources"] == {
            "limits": {"cpu": "1", "memory": "128Mi"},
            "requests": {"cpu": "500m", "memory": "64Mi"},
        }
        assert [constraint["topologyKey"] for constraint in created["spec"]["topologySpreadConstraints"]] == [
            "topology.kubernetes.io/zone"
        ]
        assert created["status"]["qosClass"] == "Burstable"
        of_each_pod = 2  # not-ready and unreachable, of DefaultTolerationSeconds
        assert created["spec"]["tolerations"][of_each_pod:] == [PRESSURE]
        spec["topologySpreadConstraints"] = [OWN]
        status, kept = plane.api.request(
            "POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", **pod}
        )
        assert (status, kept["spec"]["topologySpreadConstraints"]) == (201, [OWN]), "ifAbsent"
        assert services_by_app(installation) == {
            "deployment": "deployments",
            "replicaset": "rest",
            "statefulset": "rest",
            "job": "jobs",
        }
