"""Pods of variants on the real control plane: what the scheduler says, and how they are evicted."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient

from tests.cluster.controlplane import ControlPlane
from tests.controller.shares.variant_cluster import compile_shares
from webhook.adapters.clocks import SystemClock
from webhook.adapters.kubernetes import KubernetesEvictions, connect
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import parse_moment_us
from webhook.core.pods.variant_pod import VariantPod, read_variant_pod
from webhook.ports import EvictionResult

Json = dict[str, Any]
SPACE = "variant-pods"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
BUDGETS = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets"
NOWHERE = {"nodeSelector": {"kind": "spot"}}
GATE = {"schedulingGates": [{"name": "example.com/other"}]}
JSON_PATCH = "application/json-patch+json"
SHARES = compile_shares(namespace=SPACE)


@pytest.fixture(scope="module", autouse=True)
def space(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("create", "namespace", SPACE)
    yield
    plane.kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[ApiClient]:
    async with await connect(plane.kubeconfig) as client:
        yield client


def build(name: str, slot: int = 1, owner: str = "", **spec: Any) -> Json:
    """Return a Pod with a slot, as Podgate leaves it; of an owner, which need not exist, if one is named."""
    labels = {"app": "web", "podgate.io/service": "web", "podgate.io/variant": "spot"}
    annotations = {"podgate.io/slot": str(slot), "podgate.io/slot-claim": f"c-{name}"}
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    metadata |= {"ownerReferences": owners} if owner else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def create(plane: ControlPlane, document: Json, path: str = PODS) -> Json:
    status, created = plane.api.request("POST", path, document)
    assert status == 201, created
    return dict(created)


def find_scheduled(plane: ControlPlane, name: str) -> Json:
    conditions = (plane.api.get(f"{PODS}/{name}") or {}).get("status", {}).get("conditions", ())
    return next((dict(found) for found in conditions if found["type"] == "PodScheduled"), {})


def wait_until_unschedulable(plane: ControlPlane, name: str) -> Json:
    """Wait until the scheduler has tried a Pod in vain; return the Pod."""
    plane.wait(lambda: find_scheduled(plane, name).get("reason") == "Unschedulable", f"{name} to find no node")
    return dict(plane.api.get(f"{PODS}/{name}"))


def read(document: Json, now_us: int) -> VariantPod:
    """Read a Pod as one of a ReplicaSet: the control plane deletes Pods whose owner does not exist."""
    owned = build("x", owner="rs")["metadata"]["ownerReferences"]
    pod = Pod.from_document({**document, "metadata": {**document["metadata"], "ownerReferences": owned}})
    found = read_variant_pod(pod, "web", SHARES.shares["web"], now_us)
    assert found is not None
    return found


async def evict(client: ApiClient, pod: Json, **changes: str) -> EvictionResult:
    metadata = {**pod["metadata"], **changes}
    evictions = KubernetesEvictions(client)
    return await evictions.evict(SPACE, metadata["name"], metadata["uid"], metadata["resourceVersion"])


# --- what the scheduler says ---


async def test_a_pod_without_a_node_counts_since_the_scheduler_first_said_so(plane: ControlPlane) -> None:
    create(plane, build("waits", **NOWHERE))
    pod, now_us = wait_until_unschedulable(plane, "waits"), SystemClock().now_us()
    found = read(pod, now_us)
    assert now_us - 60_000_000 < found.unschedulable_us <= now_us + 1_000_000
    create(plane, {**build("x", **NOWHERE), "metadata": {"name": "node"}} | {"kind": "Pod"})  # the scheduler goes on
    assert read(plane.api.get(f"{PODS}/waits"), now_us + 10_000_000).unschedulable_us == found.unschedulable_us


async def test_a_pod_that_had_a_gate_counts_since_it_is_tried(plane: ControlPlane) -> None:
    create(plane, build("gated", **NOWHERE, **GATE))
    plane.wait(lambda: find_scheduled(plane, "gated").get("reason") == "SchedulingGated", "the gate to be seen")
    await asyncio.sleep(3)  # the API server's times are whole seconds
    now_us = SystemClock().now_us()
    assert read(plane.api.get(f"{PODS}/gated"), now_us).unschedulable_us == 0
    patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
    status, answer = plane.api.request("PATCH", f"{PODS}/gated", patch, JSON_PATCH)
    assert status == 200, answer
    pod = wait_until_unschedulable(plane, "gated")
    since_us = read(pod, now_us + 3_600_000_000).unschedulable_us
    assert now_us - 1_500_000 < since_us < now_us + 60_000_000
    at_us = parse_moment_us(find_scheduled(plane, "gated")["lastTransitionTime"])
    assert at_us <= now_us - 2_000_000, "the condition has the time of the gate"


async def test_an_unbound_claim_is_no_evidence_against_the_variant(plane: ControlPlane) -> None:
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim |= {"storageClassName": "nobody-provisions"}
    metadata = {"name": "data"}
    document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim}
    create(plane, document, f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    for name, volumes in (("unbound", volume), ("absent", {**volume, "persistentVolumeClaim": {"claimName": "no"}})):
        create(plane, build(name, volumes=[volumes]))
        pod = wait_until_unschedulable(plane, name)
        assert read(pod, SystemClock().now_us()).unschedulable_us == 0, find_scheduled(plane, name)


# --- evictions ---


async def test_a_pod_is_evicted_only_as_it_was_known(plane: ControlPlane, client: ApiClient) -> None:
    create(plane, build("stale", **NOWHERE))
    pod = wait_until_unschedulable(plane, "stale")
    plane.kubectl("annotate", "pod", "stale", "-n", SPACE, "changed=yes")
    assert await evict(client, pod) is EvictionResult.CHANGED
    pod = plane.api.get(f"{PODS}/stale")
    assert await evict(client, pod, uid="another") is EvictionResult.CHANGED
    assert await evict(client, pod) is EvictionResult.EVICTED
    assert await evict(client, pod) is EvictionResult.GONE
    assert plane.api.get(f"{PODS}/stale") is None


async def test_a_budget_protects_a_ready_pod_and_not_one_that_waits(plane: ControlPlane, client: ApiClient) -> None:
    labels = {"matchLabels": {"app": "web"}}
    metadata = {"name": "all"}
    spec = {"minAvailable": "100%", "selector": labels}
    create(plane, build("ready", slot=2))
    create(plane, build("protected", **NOWHERE))
    create(
        plane, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}, BUDGETS
    )

    def is_ready() -> bool:
        conditions = plane.api.get(f"{PODS}/ready")["status"].get("conditions", ())
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)

    def is_known() -> bool:
        status = plane.api.get(f"{BUDGETS}/all").get("status", {})
        return bool(status.get("currentHealthy")) and status.get("disruptionsAllowed") == 0

    try:
        plane.wait(is_ready, "the Pod to be Ready")
        plane.wait(is_known, "the budget to know its Pods")
        waiting = wait_until_unschedulable(plane, "protected")
        assert await evict(client, plane.api.get(f"{PODS}/ready")) is EvictionResult.BLOCKED
        assert await evict(client, waiting) is EvictionResult.EVICTED
    finally:
        plane.api.request("DELETE", f"{BUDGETS}/all")


@pytest.mark.parametrize("ignores", [True, False])
async def test_an_evicted_pod_of_a_job_counts_as_failed_unless_its_policy_ignores_it(
    plane: ControlPlane, client: ApiClient, *, ignores: bool
) -> None:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    template = build("x", **NOWHERE, restartPolicy="Never")
    spec: Json = {"backoffLimit": 3, "template": {"metadata": {"labels": {"job": "it"}}, "spec": template["spec"]}}
    spec |= {"podFailurePolicy": {"rules": rules}} if ignores else {}
    name, jobs = f"job-{str(ignores).lower()}", f"/apis/batch/v1/namespaces/{SPACE}/jobs"
    create(plane, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}, jobs)

    def list_pods() -> list[Json]:
        query = f"labelSelector=batch.kubernetes.io/job-name%3D{name}"
        return [dict(pod) for pod in plane.api.get(f"{PODS}?{query}")["items"]]

    def list_waiting() -> list[Json]:
        return [pod for pod in list_pods() if find_scheduled(plane, pod["metadata"]["name"]).get("reason")]

    [first] = plane.wait(list_waiting, "a Pod of the Job")
    first = wait_until_unschedulable(plane, first["metadata"]["name"])
    assert await evict(client, first) is EvictionResult.EVICTED
    uid = first["metadata"]["uid"]
    plane.wait(lambda: [pod for pod in list_pods() if pod["metadata"]["uid"] != uid], "another Pod of the Job")
    assert plane.api.get(f"{jobs}/{name}")["status"].get("failed", 0) == (0 if ignores else 1)
