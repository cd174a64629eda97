"""Watches of policy and Namespaces on a real API server, with the manifests' permissions, through outages."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.installation import KEY, LAST_GOOD, POLICY, RBAC, SERVICE_ACCOUNT
from tests.cluster.load_balancer import LoadBalancer, LoadBalancers
from tests.contract.watch_contract import QUICK, Watching, document, follow, wait_until_kept
from tests.timeouts import HANG_SECONDS

_CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
# Far below the interval of bookmarks, which is a minute.
SHORT_INACTIVITY = replace(QUICK, inactivity_seconds=2, request_seconds=2)


class ControlPlaneCluster:
    """The watched cluster of the contract, as a control plane. Podgate connects through a load balancer."""

    def __init__(self, plane: ControlPlane, load_balancer: LoadBalancer) -> None:
        self.plane = plane
        self.load_balancer = load_balancer
        self._open()
        token = plane.kubectl("create", "token", SERVICE_ACCOUNT, "-n", NAMESPACE).stdout.strip()
        self.kubeconfig = plane.write_kubeconfig("podgate", token=token, server=f"https://{load_balancer.address}")

    def _open(self) -> None:
        self.load_balancer.targets = [f"127.0.0.1:{self.plane.ports.apiserver}"]

    async def put_namespace(self, name: str, **labels: str) -> None:
        await self._apply("Namespace", {"name": name, "labels": labels})

    async def remove_namespace(self, name: str) -> None:
        await asyncio.to_thread(self.plane.kubectl, "delete", "namespace", name)

    async def put_policy(self, text: str) -> None:
        await self._apply("ConfigMap", {"name": POLICY, "namespace": NAMESPACE}, data={KEY: text})

    async def remove_policy(self) -> None:
        await self._delete(POLICY)

    async def find_last_good(self) -> str | None:
        config_map = await asyncio.to_thread(self.plane.api.get, f"{_CONFIGMAPS}/{LAST_GOOD}")
        return config_map["data"][KEY] if config_map else None

    @asynccontextmanager
    async def disconnect(self, *, forgotten: bool = False) -> AsyncIterator[None]:
        await asyncio.to_thread(self._shut)
        yield
        if forgotten:
            await asyncio.to_thread(self.forget)
        await asyncio.to_thread(self._open)

    def forget(self) -> None:
        """Compact etcd, and restart the API server, whose cache has later versions."""
        revision = self._etcd("kv/range", {"key": "AA==", "limit": 1})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        self.plane.restart("kube-apiserver", kill=True)

    async def tidy(self) -> None:
        await asyncio.to_thread(self._open)
        for name in (POLICY, LAST_GOOD):
            await self._delete(name)

    def _shut(self) -> None:
        self.load_balancer.targets = []
        self.load_balancer.cut()

    def _etcd(self, call: str, body: dict[str, Any]) -> Any:
        request = Request(f"http://127.0.0.1:{self.plane.ports.etcd}/v3/{call}", json.dumps(body).encode())
        with urlopen(request, timeout=HANG_SECONDS) as response:  # noqa: S310  loopback
            return json.load(response)

    async def _apply(self, kind: str, metadata: dict[str, Any], **fields: Any) -> None:
        await asyncio.to_thread(self.plane.apply, {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})

    async def _delete(self, name: str) -> None:
        await asyncio.to_thread(self.plane.kubectl, "delete", "configmap", name, "-n", NAMESPACE, "--ignore-not-found")


def _change_with_etcd_stopped(plane: ControlPlane, change: Callable[[], object]) -> None:
    for name in ("kube-apiserver", "etcd"):
        plane.stop_component(name, kill=name == "kube-apiserver")
    change()
    for name in ("etcd", "kube-apiserver"):
        plane.start_component(name)
    plane.wait_ready()


def _replace(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    backup.rename(folder)


@pytest.fixture(scope="module")
def watched_plane() -> Iterator[ControlPlane]:
    """Start a cluster for these tests, which restart its API server."""
    with ControlPlane(components=(*API_ALONE, "kube-controller-manager")) as plane:  # it finishes deletions
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("apply", "-f", str(RBAC))
        yield plane


@pytest.fixture
async def cluster(watched_plane: ControlPlane) -> AsyncIterator[ControlPlaneCluster]:
    with LoadBalancers() as load_balancers:
        watched_cluster = await asyncio.to_thread(ControlPlaneCluster, watched_plane, load_balancers.open())
        yield watched_cluster
        await watched_cluster.tidy()


class TestControlPlane(Watching):
    pass


async def test_compacted_resource_version_leads_to_a_list(cluster: ControlPlaneCluster) -> None:
    await cluster.put_namespace("compacted")
    await asyncio.to_thread(cluster.forget)
    old = "/api/v1/namespaces?watch=true&resourceVersion=1&timeoutSeconds=5"
    _, event = await asyncio.to_thread(cluster.plane.api.request, "GET", old)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410), "the old version must be gone"
    async with follow(cluster) as follower:
        follower.namespaces._watch._version = "1"
        await follower.wait_until(lambda: follower.namespaces.find_labels("compacted") is not None)
        await cluster.put_namespace("compacted", tier="prod")
        await follower.wait_until(lambda: "tier" in (follower.namespaces.find_labels("compacted") or {}))


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "crashed"])
async def test_changes_arrive_after_a_restart(cluster: ControlPlaneCluster, component: str, *, kill: bool) -> None:
    await cluster.put_policy(document(1))
    async with follow(cluster) as follower:
        await follower.wait_until(lambda: follower.find_pods_limit() == "1")
        await asyncio.to_thread(cluster.plane.restart, component, kill=kill)
        await asyncio.to_thread(cluster.plane.wait_ready)
        assert follower.find_pods_limit() == "1"
        await cluster.put_policy(document(2))
        await cluster.put_namespace("restarted", now=f"{component}-{kill}")
        await follower.wait_until(lambda: follower.find_pods_limit() == "2")
        expected = f"{component}-{kill}"
        await follower.wait_until(lambda: (follower.namespaces.find_labels("restarted") or {}).get("now") == expected)
        await wait_until_kept(cluster, document(2))


async def test_hanging_api_server_is_reported_and_watched_again_when_it_resumes(cluster: ControlPlaneCluster) -> None:
    await cluster.put_policy(document(1))
    async with follow(cluster, SHORT_INACTIVITY) as follower:
        await follower.wait_until(lambda: follower.find_pods_limit() == "1")
        await wait_until_kept(cluster, document(1))
        pid = cluster.plane.processes.pid("kube-apiserver")
        os.kill(pid, signal.SIGSTOP)
        try:
            await follower.wait_until(lambda: len(follower.troubles) >= 2)
            assert any("configmap podgate-system/podgate-policy" in trouble for trouble in follower.troubles)
            assert any("namespaces" in trouble for trouble in follower.troubles)
            assert await follower.namespaces.look_up_labels("anything") is None
            assert follower.find_pods_limit() == "1"
        finally:
            os.kill(pid, signal.SIGCONT)
        await cluster.put_policy(document(2))
        await follower.wait_until(lambda: follower.find_pods_limit() == "2")
        contacts = follower.contacts
        await follower.wait_until(lambda: follower.contacts > contacts)


async def test_restored_etcd_backup_is_watched_again(cluster: ControlPlaneCluster) -> None:
    """Resource versions start from the backup again, below those of the watch."""
    plane = cluster.plane
    await cluster.put_policy(document(1))
    await cluster.put_namespace("restored", tier="old")
    backup = plane.folder / "etcd-saved"
    await asyncio.to_thread(_change_with_etcd_stopped, plane, lambda: shutil.copytree(plane.folder / "etcd", backup))
    for number in range(20):
        await cluster.put_namespace("restored", tier=f"new-{number}")
    await cluster.put_policy(document(2))
    async with follow(cluster, SHORT_INACTIVITY) as follower:
        await follower.wait_until(lambda: follower.find_pods_limit() == "2")
        await cluster.put_policy(document(3))
        await follower.wait_until(lambda: follower.find_pods_limit() == "3")
        await asyncio.to_thread(_change_with_etcd_stopped, plane, lambda: _replace(plane.folder / "etcd", backup))
        await follower.wait_until(lambda: follower.find_pods_limit() == "1")
        labels = follower.namespaces.find_labels
        await follower.wait_until(lambda: (labels("restored") or {}).get("tier") == "old")
        await cluster.put_policy(document(4))
        await follower.wait_until(lambda: follower.find_pods_limit() == "4")
