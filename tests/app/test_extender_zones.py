"""`podgate extender` as a process whose policy asks for NUMA zones while it runs: no node passes on unknown zones."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from certs.authority import Authority, list_server_names
from certs.ca_generations import encode_pem
from certs.files import write
from tests.cluster.kubelet import mount_key_pair
from tests.harness.fake_apiserver import NODES, TOPOLOGIES, FakeApiServer, Fault, fake_apiserver, refuse, wait_until
from tests.harness.server_process import start, wait_until_listening
from tests.scheduling.extender_calls import topology
from tests.timeouts import HANG_SECONDS

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes: {sources: [{requests: {}}]}
services:
- name: batch
  match: {namespaces: [shop]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}}
"""
AMOUNTS = {"cpu": "4", "memory": "1Gi"}
GUARANTEED = {"name": "c", "image": "i", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}
POD = {
    "metadata": {"name": "p", "namespace": "shop", "uid": "u", "labels": {"podgate.io/service": "batch"}},
    "spec": {"containers": [GUARANTEED]},
}
ALL = ["full", "other"]
FULL = "node(s) had no single NUMA zone with the requested cpu and memory"
UNLISTED = "node(s) had no NUMA zones listed yet"


class RunningExtender:
    """The process, its policy, and the API server, on which one node's zones are full."""

    def __init__(self, fake: FakeApiServer, policy: Path, url: str, client: aiohttp.ClientSession) -> None:
        self.fake, self.policy = fake, policy
        self._url, self._client = url, client

    async def filter(self) -> tuple[list[str], dict[str, str]]:
        """Return the nodes that pass, and why the others do not."""
        async with self._client.post(self._url, json={"Pod": POD, "NodeNames": ALL}) as answer:
            found: dict[str, Any] = await answer.json(content_type=None)
        assert not found.get("Error"), found
        return found.get("NodeNames") or [], found.get("FailedAndUnresolvableNodes") or {}

    async def ask_for_zones(self, answer: Fault) -> None:
        """Ask for zones, whose list is answered so, and wait until the policy is in force."""

        async def fault(request: web.Request) -> web.StreamResponse:
            return await (answer if request.path == TOPOLOGIES else self.fake.list)(request)

        self.fake.always["list"] = fault
        self.policy.write_text(POLICY.replace("hot: {cpu: 0.8}", "numa: Required"))
        await wait_until(lambda: any(seen.path == TOPOLOGIES for seen in self.fake.seen))


@asynccontextmanager
async def run_extender(folder: Path) -> AsyncIterator[RunningExtender]:
    authority, policy, log = Authority.create("extender"), folder / "policy.yaml", folder / "extender.log"
    policy.write_text(POLICY)
    write(folder / "ca.crt", encode_pem(authority.key_pair.certificate), secret=False)
    mount_key_pair(authority.issue_server("extender", list_server_names("127.0.0.1")), folder / "server")
    mount_key_pair(authority.issue_client("podgate-scheduler"), folder / "client")
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "client" / "tls.crt", folder / "client" / "tls.key")
    flags = {
        "policy": policy,
        "kubeconfig": folder / "kubeconfig",
        "client-ca": folder / "ca.crt",
        "tls-cert": folder / "server" / "tls.crt",
        "tls-key": folder / "server" / "tls.key",
        **dict.fromkeys(("listen", "plain-listen", "decision-listen"), "127.0.0.1:0"),
    }
    async with fake_apiserver(folder) as fake:
        for node in ALL:
            fake.put(NODES, node, status={"allocatable": {"cpu": "8", "memory": "64Gi"}})
        report = topology("full", "2", "2")
        fake.put(TOPOLOGIES, "full", attributes=report["attributes"], zones=report["zones"])
        process = start(["-m", "webhook", "extender", *(f"--{name}={value}" for name, value in flags.items())], log)
        try:
            found = await wait_until_listening(process, log)
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector) as client:
                await _wait_until_ready(client, found["plain"][0])
                yield RunningExtender(fake, policy, f"https://{found['extender'][0]}/filter", client)
        finally:
            if process.returncode is None:
                process.terminate()
            code = await asyncio.wait_for(process.wait(), HANG_SECONDS)
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text()


async def _wait_until_ready(client: aiohttp.ClientSession, plain: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            async with client.get(f"http://{plain}/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.02)


async def wait_for(extender: RunningExtender, passed: list[str], refused: dict[str, str]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while await extender.filter() != (passed, refused):  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.02)


async def test_no_node_passes_before_its_zones_are_listed(tmp_path: Path) -> None:
    async with run_extender(tmp_path) as extender:
        assert await extender.filter() == (ALL, {})
        is_listed = asyncio.Event()

        async def list_late(request: web.Request) -> web.StreamResponse:
            await is_listed.wait()
            return await extender.fake.list(request)

        await extender.ask_for_zones(list_late)
        assert await extender.filter() == ([], dict.fromkeys(ALL, UNLISTED))
        is_listed.set()
        await wait_for(extender, ["other"], {"full": FULL})


@pytest.mark.parametrize("status", [403, 404])
async def test_zones_that_cannot_be_listed_refuse_nothing(tmp_path: Path, status: int) -> None:
    """A cluster may have none; so it is at a start."""
    async with run_extender(tmp_path) as extender:
        await extender.ask_for_zones(refuse(status))
        await wait_for(extender, ALL, {})
