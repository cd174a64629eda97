"""`podgate install --with-scheduler` on a real control plane: its kube-scheduler asks the extender."""

import asyncio
import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.command_runner import BIN, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.installed_scheduler import EXTENDER, SCHEDULER, InstalledScheduler, results
from tests.cluster.kwok import node
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import ClusterObjects, StorageClassWake, connect
from webhook.app.operations.call_proof import CallProof
from webhook.app.scheduling.extender_proof import ExtenderProver

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {refresh: 1s, sources: [{requests: {}}]}
services:
- name: web
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}}
"""
PROBE = f"/api/v1/namespaces/{NAMESPACE}/pods/podgate-extender-probe"
WAKE = "/apis/storage.k8s.io/v1/storageclasses/podgate-wake"


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledScheduler]:
    """Install; start both processes with the Secrets that the command has created while it waits."""
    folder = tmp_path_factory.mktemp("scheduler")
    (policy := folder / "policy.yaml").write_text(POLICY)
    with ControlPlane(components=tuple(one for one in COMPONENTS if one != "kube-scheduler")) as plane:
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
    pods = "/api/v1/namespaces/shop/pods"
    pod = {
        "metadata": {"name": "first", "labels": {"podgate.io/service": "web"}},
        "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "c", "image": "i"}]},
    }
    code, answer = plane.api.request("POST", pods, pod)
    assert code == 201, answer
    plane.wait(lambda: plane.api.get(f"{pods}/first")["spec"].get("nodeName"), "the Pod to be bound", SCHEDULER)
    lease = plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER}")
    assert lease["spec"]["holderIdentity"]
    for name in (EXTENDER, SCHEDULER):
        refused = [line for line in scheduled.log(name).splitlines() if "forbidden" in line or "HTTP 403" in line]
        assert refused == []
    assert plane.api.get(PROBE) is None


def test_installation_can_be_repeated_after_a_wake(scheduled: InstalledScheduler) -> None:
    plane = scheduled.plane
    extender = scheduled.kubeconfig(EXTENDER)

    async def wake() -> None:
        client = await connect(extender)
        try:
            await StorageClassWake(client).wake()
        finally:
            await client.close()

    asyncio.run(wake())
    assert plane.api.get(WAKE)["metadata"]["annotations"]["podgate.io/woken-at"]
    again = ("install", "--kubeconfig", plane.kubeconfig, "--dry-run", "-o", "json")
    done = podgate(*again, "--with-scheduler")
    assert done.code == 0, done.err
    found = results(done.out)
    assert found["storageclass.storage.k8s.io/podgate-wake"] == "unchanged"
    changed = {name for name, result in found.items() if result not in {"unchanged", "kept as it is: yours"}}
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
