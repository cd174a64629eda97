"""`podgate controller` as a process: leadership and standby; Pod tracking by a server with --store memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.command_runner import run_installed
from tests.harness.fake_apiserver import LEASES, PODS, FakeApiServer, fake_apiserver, refuse, wait_until
from tests.harness.server_process import Files, Process, Serving, run_server, start
from tests.redis_servers import RedisServer, usual_names
from tests.redis_servers.inventory import names
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.commands.pages.status_page import format_controller
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire, CounterPlan, ServiceSnapshot
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 24h, hard: {pods: 9}}], standing: {hard: {pods: 9}}}
"""
LEADER = "podgate-leader"
_numbers = count()


@dataclass
class ControllerProcess:
    """The process of a controller, and its plain port."""

    process: Process
    plain: str

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.plain}{path}") as response:
            return response.status, await response.text()

    async def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return document

    async def wait_for_status(self, **expected: Any) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not expected.items() <= (await self.status()).items():  # noqa: ASYNC110  another process sets no event
                await asyncio.sleep(0.02)


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def any_redis(shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    """Return one Redis server, for tests that need only one version."""
    return shared_redis(names()[0])


@asynccontextmanager
async def run_controller(folder: Path, redis: RedisServer) -> AsyncIterator[ControllerProcess]:
    """Run a controller until the block ends, then terminate it as Kubernetes does; check its log for tracebacks."""
    policy, log = folder / "policy.yaml", folder / f"controller-{next(_numbers)}.log"
    policy.write_text(POLICY)
    flags = "--policy", str(policy), "--kubeconfig", str(folder / "kubeconfig"), "--store", redis.url
    process = start(["-m", "webhook", "controller", *flags, "--plain-listen", "127.0.0.1:0"], log)
    try:
        yield ControllerProcess(process, await _wait_for_address(process, log))
    finally:
        if process.returncode is None:
            process.terminate()
        code = await asyncio.wait_for(process.wait(), HANG_SECONDS)
    assert code in {0, -9}, log.read_text()
    assert "Traceback" not in log.read_text()


async def _wait_for_address(process: Process, log: Path) -> str:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            for line in log.read_text().splitlines():  # noqa: ASYNC240  a few lines
                if '"listening"' in line:
                    return str(json.loads(line)["plain"][0])
            assert process.returncode is None, log.read_text()  # noqa: ASYNC240  as above
            await asyncio.sleep(0.02)


@asynccontextmanager
async def store(redis: RedisServer) -> AsyncIterator[RedisStore]:
    """Open the store as a server does."""
    reports = StoreReports(lambda: None, lambda _: None, lambda _: None)
    redis_store = RedisStore(open_transport(redis.url), "default", SystemClock(), reports, deadline_seconds=30)
    yield redis_store
    await redis_store.close()


def plan() -> CounterPlan:
    return CompiledPolicy(LoadedPolicy(load_effective(POLICY.encode(), None).policy, "0" * 16)).plans["web"]


async def wait_for_live_pods(counters: RedisStore, standing: int) -> ServiceSnapshot:
    """Wait until limits on live Pods are enforced, and this number of Pods is counted."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            snapshot = await counters.snapshot(plan())
            if snapshot.is_standing_known and find_used(snapshot, "standing") == standing:
                return snapshot
            await asyncio.sleep(0.05)


def find_used(snapshot: ServiceSnapshot, window: str) -> int:
    return next(use.used for uses in snapshot.uses.values() for use in uses if use.window == window)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_redis_ledger_equals_the_live_pods(
    fake: FakeApiServer, tmp_path: Path, redis_server: RedisServer
) -> None:
    fake.put_pod("shop", "first", "u1")
    async with store(redis_server) as counters, run_controller(tmp_path, redis_server) as controller:
        await wait_for_live_pods(counters, 1)
        await counters.acquire(Acquire(plan(), "shop", "u2", {"pods": 1}, "user:alice", name="second"))
        fake.put_pod("shop", "second", "u2")
        fake.remove(PODS, "shop/first")
        snapshot = await wait_for_live_pods(counters, 1)
        assert list((await counters.list_live(plan(), ""))[0]) == ["u2"]
        assert find_used(snapshot, "24h") == 1, "the first Pod was charged to no window"
        status, text = await controller.get("/metrics")
        assert status == 200
        assert 'podgate_standing_drift{service="web"} 0.0' in text
        assert "podgate_watched_pods 1.0" in text
        assert await controller.get("/healthz") == (200, "ok\n")


def remove_latencies(document: dict[str, Any]) -> dict[str, Any]:
    """Return a status document without the latencies of Redis, which each call measures."""
    servers = [server | {"latencySeconds": None} for server in document["store"]["servers"]]
    return document | {"store": document["store"] | {"servers": servers}}


async def test_one_of_two_controllers_leads_and_the_other_stands_by(
    fake: FakeApiServer, tmp_path: Path, any_redis: RedisServer
) -> None:
    fake.put_pod("shop", "first", "u1")
    async with run_controller(tmp_path, any_redis) as first:
        await first.wait_for_status(leads=True)
        async with run_controller(tmp_path, any_redis) as second:
            async with asyncio.timeout(HANG_SECONDS):
                while (await second.get("/readyz"))[0] != 200:  # noqa: ASYNC110  another process sets no event
                    await asyncio.sleep(0.02)
            document_of_second = await second.status()
            printed = await asyncio.to_thread(
                run_installed, "status", "-o", "table", "--server", f"http://{first.plain}"
            )
            assert (printed.code, printed.out.splitlines()[0].endswith("controller: leads")) == (0, True)
            document = json.loads(
                (await asyncio.to_thread(run_installed, "status", "--server", f"http://{second.plain}")).out
            )
            assert remove_latencies(document) == remove_latencies(document_of_second)
            refused = await asyncio.to_thread(run_installed, "status", "web", "--server", f"http://{first.plain}")
            assert (refused.code, "is a controller, which shows no services" in refused.err) == (2, True)
            assert (document_of_second["leads"], document_of_second["role"]) == (False, "controller")
            assert "is held by" in document_of_second["waitsFor"]
            assert next(iter(format_controller(document_of_second))).endswith(
                f"controller: stands by: {document_of_second['waitsFor']}"
            )
            assert (await first.get("/readyz"))[0] == 200
            assert "podgate_watched_pods" not in (await second.get("/metrics"))[1]
            for controller, leads in ((first, "1.0"), (second, "0.0")):
                rows = (await controller.get("/metrics"))[1].splitlines()
                assert {f"podgate_leader {leads}", "podgate_ready 1.0"} <= set(rows)
            first.process.terminate()
            await second.wait_for_status(leads=True)
            assert await first.process.wait() == 0


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("redis_program", usual_names()[:1], indirect=True)
async def test_controller_that_stands_by_shows_whether_redis_responds_now(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    async with run_controller(tmp_path, redis_server) as first:
        await first.wait_for_status(leads=True)
        async with run_controller(tmp_path, redis_server) as second:
            await second.wait_for_status(leads=False)
            redis_server.kill()
            for controller in (first, second):
                await wait_for_row(controller, "podgate_store_up 0.0")
                assert (await controller.status())["store"]["error"]
            redis_server.start()
            for controller in (first, second):
                await wait_for_row(controller, "podgate_store_up 1.0")
                assert (await controller.status())["store"]["error"] == ""
            assert not (await second.status())["leads"]


async def wait_for_row(controller: ControllerProcess, row: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while row not in (await controller.get("/metrics"))[1].splitlines():  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.1)


async def test_controller_that_cannot_request_its_lease_is_not_ready(
    fake: FakeApiServer, tmp_path: Path, any_redis: RedisServer
) -> None:
    fake.always["create"] = refuse(403, "forbidden")
    async with run_controller(tmp_path, any_redis) as controller:
        status, text = await controller.get("/readyz")
        assert status == 503
        assert "lease podgate-system/podgate-leader" in text
        del fake.always["create"]
        await controller.wait_for_status(leads=True)
        assert (await controller.get("/readyz"))[0] == 200


async def test_resume_version_is_written_with_the_lease(
    fake: FakeApiServer, tmp_path: Path, any_redis: RedisServer
) -> None:
    async with run_controller(tmp_path, any_redis) as controller:
        await controller.wait_for_status(leads=True)
        await wait_until(lambda: "annotations" in (fake.find_stored(LEASES, LEADER) or {})["metadata"])
        annotations = (fake.find_stored(LEASES, LEADER) or {})["metadata"]["annotations"]
        assert set(annotations) == {
            "podgate.io/watched-version",
            "podgate.io/watched-since",
            "podgate.io/watched-store",
        }


@pytest.mark.parametrize("command", ["FLUSHALL", "PING"])
@pytest.mark.parametrize("redis_program", usual_names()[:1], indirect=True)
async def test_next_leader_notices_what_redis_has_lost_while_none_led(
    fake: FakeApiServer, tmp_path: Path, redis_server: RedisServer, command: str
) -> None:
    async with store(redis_server) as counters:
        await counters.acquire(Acquire(plan(), "shop", "u1", {"pods": 1}, "user:alice", name="first"))
    async with run_controller(tmp_path, redis_server):
        await wait_until(lambda: "ring:web" in find_annotation(fake, "podgate.io/watched-store"))
    redis_server.cli(command)
    since = find_annotation(fake, "podgate.io/watched-since")
    async with run_controller(tmp_path, redis_server) as following:
        await following.wait_for_status(leads=True)
        if command == "FLUSHALL":
            await wait_until(lambda: find_annotation(fake, "podgate.io/watched-since") != since)
        else:
            renewed = find_renewal(fake)
            await wait_until(lambda: find_renewal(fake) != renewed)
            assert find_annotation(fake, "podgate.io/watched-since") == since


def find_annotation(fake: FakeApiServer, name: str) -> str:
    metadata = (fake.find_stored(LEASES, LEADER) or {}).get("metadata", {})
    return str(metadata.get("annotations", {}).get(name, ""))


def find_renewal(fake: FakeApiServer) -> str:
    return str((fake.find_stored(LEASES, LEADER) or {})["spec"]["renewTime"])


async def test_server_with_the_memory_store_tracks_pods(fake: FakeApiServer, tmp_path: Path) -> None:
    fake.put_pod("payments", "first", "u1")
    files = Files.create(tmp_path)
    async with run_server(files, "--kubeconfig", str(tmp_path / "kubeconfig")) as server:
        await wait_for_metric(server, "podgate_watched_pods 1.0")
        fake.put_pod("payments", "second", "u2")
        await wait_for_metric(server, "podgate_watched_pods 2.0")


async def wait_for_metric(server: Serving, line: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while line not in (await server.get("/metrics"))[1]:  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.05)
