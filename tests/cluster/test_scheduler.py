"""`podgate install --with-scheduler` on a real control plane: its kube-scheduler asks the extender."""

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from certs import ca_generations
from certs.authority import Authority
from tests.cli.command_runner import BIN, Json, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.installed_scheduler import EXTENDER, SCHEDULER, InstalledScheduler, results
from tests.cluster.kwok import node
from tests.cluster.processes import ComponentError
from tests.scheduling.extender_calls import topology
from tests.scheduling.extender_server import NUMA_CRD
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import ClusterObjects, StorageClassWake, WakeConfigMap, connect
from webhook.core.checks.scheduling import SECTION
from webhook.core.scheduling.unschedulable_pods import PodReference
from webhook.operations.call_proof import CallProof
from webhook.operations.extender_proof import ExtenderProver
from webhook.operations.installer import LATER

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {refresh: 1s, sources: [{requests: {}}]}
services:
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}, numa: Required}
"""
INSIDE = f"/api/v1/namespaces/{NAMESPACE}"
PLANTED = {
    *("wake-missing", "nodes-sampled", "scheduler-configuration", "extender-not-ready", "extender-unreachable"),
    *("single-replica", "budget-missing", "right-missing", "certificate-expired", "scheduler-not-leading"),
}
PODS = "/api/v1/namespaces/shop/pods"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
PROBE = f"{INSIDE}/pods/podgate-extender-probe"
WAKE = "/apis/storage.k8s.io/v1/storageclasses/podgate-wake"


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledScheduler]:
    """Install; start both processes with the Secrets that the command has created while it waits."""
    folder = tmp_path_factory.mktemp("scheduler")
    (policy := folder / "policy.yaml").write_text(POLICY)
    with ControlPlane(
        components=tuple(component for component in COMPONENTS if component != "kube-scheduler")
    ) as plane:
        installed = InstalledScheduler(plane, folder)
        installed.start_default_scheduler()
        plane.add_nodes(*(node(name) for name in "ab"))
        plane.create_namespace("shop")
        command = ("install", "--with-scheduler", "--kubeconfig", plane.kubeconfig, "--policy", policy, "-o", "json")
        process = subprocess.Popen(
            [BIN / "podgate", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SCHEDULER}-tls"
        configuration = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{SCHEDULER}"
        plane.wait(lambda: plane.api.get(secret) and plane.api.get(configuration), "the Secrets", "kube-apiserver")
        installed.start_extender()
        installed.start_scheduler()
        out, err = process.communicate()
        document = json.loads(out)
        assert (process.returncode, document["called"]) == (1, False), err  # no server runs here
        assert document["asked"] is True, err
        assert "2 refused by the extender, which was to be shown" in document["schedulerProof"]
        yield installed


def test_pods_are_bound_with_the_rights_of_the_manifests(scheduled: InstalledScheduler) -> None:
    plane = scheduled.plane
    create(plane, "first")
    assert_bound(plane, "first")
    contact = 'watch_contact_timestamp_seconds{resource="persistentvolumeclaims"}'
    assert contact not in scheduled.metrics(), "claims are read only for Pods that name some"
    create(plane, "claiming", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}])
    plane.wait(lambda: contact in scheduled.metrics(), "the claims to be read", EXTENDER)
    plane.delete(f"{PODS}/claiming?gracePeriodSeconds=0")
    lease = plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER}")
    assert lease["spec"]["holderIdentity"]
    for name in (EXTENDER, SCHEDULER):
        refused = [line for line in scheduled.log(name).splitlines() if "forbidden" in line or "HTTP 403" in line]
        assert refused == []
    assert plane.api.get(PROBE) is None


def create(plane: ControlPlane, name: str, *, volumes: Sequence[Json] = (), **amounts: str) -> None:
    """Create a Pod, Guaranteed with these amounts."""
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    pod = {
        "metadata": {"name": name, "labels": {"podgate.io/service": "web"}},
        "spec": {"schedulerName": SCHEDULER, "containers": [container], "volumes": volumes},
    }
    code, answer = plane.api.request("POST", PODS, pod)
    assert code == 201, answer


def assert_bound(plane: ControlPlane, name: str) -> None:
    plane.wait(lambda: plane.api.get(f"{PODS}/{name}")["spec"].get("nodeName"), "the Pod to be bound", SCHEDULER)


def test_cluster_without_numa_topologies_refuses_nothing_until_it_has_some(scheduled: InstalledScheduler) -> None:
    plane = scheduled.plane
    assert plane.api.request("GET", TOPOLOGIES)[0] == 404
    create(plane, "without", cpu="2", memory="1Gi")
    assert_bound(plane, "without")
    plane.delete(f"{PODS}/without?gracePeriodSeconds=0")  # else the first reports might not contain it
    plane.apply(NUMA_CRD)
    plane.wait(lambda: plane.api.request("GET", TOPOLOGIES)[0] == 200, "the kind", "kube-apiserver")
    plane.apply(*(topology(name, "1", "1") for name in "ab"))
    plane.wait(lambda: scheduled.zones() == {"a": [1000, 1000], "b": [1000, 1000]}, "the zones", EXTENDER)
    create(plane, "within", cpu="2", memory="1Gi")
    why = "2 node(s) had no single NUMA zone with the requested cpu and memory"
    plane.wait(lambda: why in json.dumps(plane.api.get(f"{PODS}/within")["status"]), "the refusal", SCHEDULER)
    plane.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NUMA_CRD['metadata']['name']}")
    assert_bound(plane, "within")


def test_installation_can_be_repeated_after_a_wake(scheduled: InstalledScheduler) -> None:
    plane = scheduled.plane
    extender = scheduled.kubeconfig(EXTENDER)

    async def wake() -> None:
        client = await connect(extender)
        try:
            await StorageClassWake(client).wake()
            await WakeConfigMap(client).request([PodReference("shop", "absent", "uid")])
        finally:
            await client.close()

    asyncio.run(wake())
    assert plane.api.get(WAKE)["metadata"]["annotations"]["podgate.io/woken-at"]
    assert '"absent"' in plane.api.get(f"{INSIDE}/configmaps/podgate-wake")["data"]["pods"]
    again = ("install", "--kubeconfig", plane.kubeconfig, "--dry-run", "-o", "json")
    done = podgate(*again, "--with-scheduler")
    assert done.code == 0, done.err
    found = results(done.out)
    assert found["storageclass.storage.k8s.io/podgate-wake"] == found["configmap/podgate-wake"] == "unchanged"
    changed = {name for name, result in found.items() if result not in {"unchanged", "kept as it is: yours", LATER}}
    assert changed == set()
    assert "data.scheduler: 'podgate-scheduler'" in podgate(*again).error


def test_scheduler_that_goes_on_without_the_extender_is_found(scheduled: InstalledScheduler) -> None:
    plane = scheduled.plane

    async def proof() -> CallProof:
        client = await connect(plane.kubeconfig)
        try:
            return await ExtenderProver(ClusterObjects(client)).prove(HANG_SECONDS)
        finally:
            await client.close()

    plane.processes.stop(EXTENDER, kill=True)
    try:
        found = asyncio.run(proof())
    finally:
        scheduled.start_extender()
    assert not found.is_called
    assert found.text.startswith(f"{SCHEDULER} does not ask the extender: it bound pod/")
    plane.wait(lambda: plane.api.get(PROBE) is None, "the Pod to be deleted", "kwok")


def list_findings(scheduled: InstalledScheduler) -> dict[str, list[dict[str, str]]]:
    """Return the findings of `podgate check` by code."""
    done = podgate("check", "--kubeconfig", scheduled.plane.kubeconfig, "--extender", scheduled.url, "-o", "json")
    checks = [check for section in json.loads(done.out)["sections"] for check in section["checks"]]
    return {check["code"]: check["findings"] for check in checks if check["findings"]}


def plant(plane: ControlPlane, path: str, patch: Json) -> None:
    code, answer = plane.api.request("PATCH", path, patch, "application/merge-patch+json")
    assert code == 200, answer


def test_check_finds_planted_faults_and_nothing_before(scheduled: InstalledScheduler) -> None:
    """This must be the last test: it does not repair the faults."""
    plane = scheduled.plane
    ours = {check.code for check in SECTION.checks} | PLANTED
    before = list_findings(scheduled)
    assert before.keys() & ours == set(), before
    text = plane.api.get(f"{INSIDE}/configmaps/{SCHEDULER}")["data"]["config.yaml"]
    sampled = text.replace("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 50")
    plant(
        plane, f"{INSIDE}/configmaps/{SCHEDULER}", {"data": {"config.yaml": sampled.replace("preemptVerb", "bindVerb")}}
    )
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    expired = Authority.create(now=long_ago).issue_server("x", (), timedelta(hours=1), long_ago)
    pem = base64.b64encode(ca_generations.encode_pem(expired.certificate)).decode()
    plant(plane, f"{INSIDE}/secrets/{EXTENDER}-tls", {"data": {"tls.crt": pem}})
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{EXTENDER}"
    unfit = {"template": {"spec": {"nodeSelector": {"nothing-has": "this"}}}}
    plant(plane, deployment, {"spec": {"replicas": 1, **unfit}})
    plant(plane, f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{EXTENDER}", {"rules": []})
    for name in (SCHEDULER, EXTENDER):
        plane.processes.stop(name, kill=True)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER}"
    plane.delete(
        WAKE,
        lease,
        f"{INSIDE}/configmaps/podgate-wake",
        f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{SCHEDULER}",
    )
    seen: list[dict[str, list[dict[str, str]]]] = []

    def has_found_all() -> bool:
        seen.append(list_findings(scheduled))
        return seen[-1].keys() >= PLANTED

    try:
        plane.wait(has_found_all, "the findings", "kube-apiserver", timeout_seconds=HANG_SECONDS)
    except ComponentError as error:
        raise AssertionError(f"not found: {PLANTED - seen[-1].keys()}") from error
    assert f"ServiceAccount {NAMESPACE}/{EXTENDER}" in {finding["object"] for finding in seen[-1]["right-missing"]}
    woken_by = {finding["object"] for finding in seen[-1]["wake-missing"]}
    assert woken_by == {"StorageClass podgate-wake", f"ConfigMap {NAMESPACE}/podgate-wake"}
    assert [finding["object"] for finding in seen[-1]["single-replica"]] == [f"Deployment {NAMESPACE}/{EXTENDER}"]
    assert [finding["object"] for finding in seen[-1]["budget-missing"]] == [f"Deployment {NAMESPACE}/{SCHEDULER}"]
