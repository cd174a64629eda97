"""Pages of the console on a real server: a service, a story by both ways, the queue and nodes."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.harness.console import open_console
from tests.harness.console_process import start_console
from tests.harness.server_process import Files, Serving, pod, run_server
from tests.timeouts import HANG_SECONDS
from webhook.commands.clients import status_client
from webhook.commands.simulator import Ask
from webhook.console.interface.document_reader import ConsolePorts

USER = "system:serviceaccount:kube-system:replicaset-controller"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f", "uid": "owner-1", "controller": True}


@dataclass(frozen=True)
class RealPort:
    """A port of a real server."""

    name: str

    async def get(self, path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, self.name, path)


async def deny_pods(server: Serving) -> None:
    """Let a ReplicaSet's Pods use up the quota of payment-api, until its breaker opens."""
    for number in range(8):
        body = pod("payment-api")
        body["metadata"] |= {"name": f"web-5f-{number}", "ownerReferences": [OWNER]}
        await server.create(Ask(body, "payments", f"uid-{number}", USER))


def check_service(page: str) -> None:
    assert "3 of 3" in page
    assert 'data-live="diagram/OPEN" data-state="OPEN"' in page
    assert "payments/web-5f</a>" in page
    assert "QuotaExceeded" in page
    assert 'class="breaker" data-state="CLOSED">Closed' in page, "its history has the state before"


async def test_the_console_without_a_cluster_shows_each_page(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        await deny_pods(server)
        ports = ["--server", f"http://{server.plain}", "--decisions", f"http://{server.decisions}"]
        arguments = [*ports, "--extender", "http://127.0.0.1:1", "--kubeconfig", str(tmp_path / "none")]
        process, address, _ = await start_console(tmp_path, *arguments)
        url = address.partition("/?")[0]

        async def get(path: str) -> str:
            async with session.get(url + path) as answer:
                assert answer.status == 200, await answer.text()
                return await answer.text()

        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            await get(address.removeprefix(url))
            check_service(await get("/service/payment-api"))
            story = await get("/explain?pod=payments/web-5f-7")
            assert '<h2 id="verdict">BreakerOpen</h2>' in story
            assert "The breaker admits probes <strong>" in story
            story = await get("/explain?what=rs/web-5f&namespace=payments")
            assert "ReplicaSet payments/web-5f" in story
            assert "the process that releases Pods is not known here" in await get("/queue")
            assert "no extender answers" in await get("/nodes")
        process.terminate()
        assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0


async def test_a_console_without_an_explainer_asks_the_decision_port(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        await deny_pods(server)
        plain = RealPort(f"http://{server.plain}")
        async with open_console(ConsolePorts(plain, RealPort(f"http://{server.decisions}"), plain)) as client:
            check_service((await client.get("/service/payment-api"))[1])
            for asked in (
                "pod=payments/web-5f-7",
                "what=rs/web-5f&namespace=payments",
                "what=deploy/web&namespace=payments",
            ):
                _, page = await client.get(f"/explain?{asked}")
                assert '<h2 id="verdict">BreakerOpen</h2>' in page, asked
                assert "this page explains by records alone" in page
            _, page = await client.get("/explain?what=deploy/nobody&namespace=payments")
            assert "Nothing is known of deployment.apps payments/nobody" in page
