"""Servers on the memory store in one cluster: one counts, a second waits or exits."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster.processes import find_free_ports
from tests.harness.fake_apiserver import LEASES, FakeApiServer, drop, fake_apiserver, wait_until
from tests.harness.raw_http import BODY, eventually, format_length, head, line, status
from tests.harness.server_process import Files, Process, run_server, start
from tests.timeouts import HANG_SECONDS

LEASE = "podgate-leader"
HELD = "lease podgate-system/podgate-leader is held by "
REMEDY = "with --store memory only one server may run: run one replica, or let all share a --store redis://"
SHORT_WAIT = "import webhook.app.server as s; s._LEASE_PATIENCE_SECONDS = 1; from webhook.cli import main; main()"


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.create(tmp_path)


def kubeconfig_flags(files: Files) -> tuple[str, str]:
    return ("--kubeconfig", str(files.folder / "kubeconfig"))


def lease_holder(fake: FakeApiServer) -> str | None:
    lease = fake.find_stored(LEASES, LEASE)
    return lease["spec"]["holderIdentity"] if lease else None


@dataclass
class ServerProcess:
    """A server process that may wait for the lease, and its log."""

    process: Process
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.log.read_text().splitlines() if row.startswith("{")]

    def find_logged(self, message: str) -> dict[str, Any] | None:
        return next((row for row in self.lines() if row["msg"] == message), None)

    async def wait(self) -> int:
        return await asyncio.wait_for(self.process.wait(), HANG_SECONDS)


@asynccontextmanager
async def start_server(files: Files, *arguments: str, code: str = "") -> AsyncIterator[ServerProcess]:
    program = ("-c", code) if code else ("-m", "webhook")
    log = files.folder / "second.log"
    command = [*program, "serve", *files.arguments(), *kubeconfig_flags(files), *arguments]
    process = start(command, log)
    try:
        yield ServerProcess(process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "Traceback" not in log.read_text()


async def read_readiness(address: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/readyz") as response:
        return response.status, await response.text()


async def test_second_server_logs_the_holder_and_takes_over_on_termination(fake: FakeApiServer, files: Files) -> None:
    plain = f"127.0.0.1:{find_free_ports(1)[0]}"
    async with run_server(files, *kubeconfig_flags(files), "--drain", "60s") as first, line(first) as connection:
        connection.send(head(first, format_length()) + BODY)
        assert status(await connection.answer()) == 200
        holder = lease_holder(fake)
        async with start_server(files, "--plain-listen", plain) as waiting:
            await wait_until(lambda: waiting.find_logged("waiting for another server to exit") is not None)
            code, reasons = await read_readiness(plain)
            assert code == 503
            assert reasons.startswith(f"{HELD}{holder} since 20")
            assert waiting.find_logged("listening") is None
            first.process.terminate()
            await wait_until(lambda: waiting.find_logged("listening") is not None)
            assert (await read_readiness(plain))[0] == 200
            assert lease_holder(fake) not in {None, holder}
            connection.send(head(first, format_length()) + BODY)
            assert status(await connection.answer()) == 200, "the first server still answers on its open connections"
            assert await asyncio.wait_for(first.process.wait(), HANG_SECONDS) == 0, (
                "the first server exits after its last connection"
            )


async def test_second_server_exits_after_its_wait_with_the_holder_and_a_remedy(
    fake: FakeApiServer, files: Files
) -> None:
    async with run_server(files, *kubeconfig_flags(files)):
        holder = lease_holder(fake)
        async with start_server(files, code=SHORT_WAIT) as waiting:
            assert await waiting.wait() == 2
            last = waiting.log.read_text().splitlines()[-1]
            assert last.startswith(f"error: {HELD}{holder} since 20")
            assert REMEDY in last
            assert waiting.find_logged("listening") is None
        assert lease_holder(fake) == holder


async def test_server_that_cannot_start_prints_the_error_alone(fake: FakeApiServer, files: Files) -> None:
    files.pki.paths.certificate.write_text("no certificate")
    async with start_server(files) as server:
        assert await server.wait() == 2
        text = [row for row in server.log.read_text().splitlines() if not row.startswith("{")]
    assert len(text) == 1, text
    assert text[0].startswith(f"error: {files.pki.paths.certificate}: ")
    assert lease_holder(fake) is None


async def test_waiting_server_ends_on_sigterm(fake: FakeApiServer, files: Files) -> None:
    fake.put(LEASES, LEASE, spec={"holderIdentity": "other", "leaseDurationSeconds": 3600})
    async with start_server(files) as waiting:
        await wait_until(lambda: waiting.find_logged("waiting for another server to exit") is not None)
        waiting.process.terminate()
        assert await waiting.wait() == 0
        assert waiting.find_logged("stopped") is not None
    assert lease_holder(fake) == "other"


async def test_replaced_server_exits_with_a_log_line(fake: FakeApiServer, files: Files) -> None:
    async with start_server(files) as server:
        await wait_until(lambda: server.find_logged("listening") is not None)
        fake.put(LEASES, LEASE, spec={"holderIdentity": "other", "acquireTime": "2001-02-03T04:05:06.000000Z"})
        assert await server.wait() == 2
        logged = server.find_logged("exiting")
        assert logged is not None
        lost = "lease podgate-system/podgate-leader was not renewed in time, and is held by other since 2001-02-03T04"
        assert logged["reason"].startswith(lost)
        assert server.log.read_text().splitlines()[-1].startswith(f"error: {lost}")
    assert lease_holder(fake) == "other"


async def test_lease_holder_continues_while_the_api_server_is_unavailable(fake: FakeApiServer, files: Files) -> None:
    async with run_server(files, *kubeconfig_flags(files), "--drain", "0s") as server, line(server) as connection:
        for verb in ("get", "list", "watch", "update"):
            fake.always[verb] = drop
        fake.break_watches()
        await server.wait_for_metric('podgate_kubernetes_watch_failures_total{resource="leases"}', 1)
        connection.send(head(server, format_length()) + BODY)
        assert status(await connection.answer()) == 200
        assert await server.get("/readyz") == (200, "ok\n")
        assert await server.metric("podgate_leader") == await server.metric("podgate_ready") == 1


async def test_server_listens_once_the_api_server_answers(fake: FakeApiServer, files: Files) -> None:
    fake.always["get"] = drop
    plain = f"127.0.0.1:{find_free_ports(1)[0]}"

    async def reports_lease_error() -> bool:
        try:
            return (await read_readiness(plain))[1].startswith("cannot hold lease podgate-system/podgate-leader: ")
        except aiohttp.ClientError:
            return False

    async with start_server(files, "--plain-listen", plain) as server:
        await eventually(reports_lease_error)
        assert server.find_logged("listening") is None
        fake.always.clear()
        await wait_until(lambda: server.find_logged("listening") is not None)
        assert (await read_readiness(plain))[0] == 200


SHARED = ("--store", "redis://127.0.0.1:1", "--drain", "0s")


async def test_servers_with_a_shared_store_do_not_wait_and_are_counted_by_leases(
    fake: FakeApiServer, files: Files
) -> None:
    async with (
        run_server(files, *kubeconfig_flags(files), *SHARED),
        run_server(files, *kubeconfig_flags(files), *SHARED),
    ):
        await wait_until(lambda: len(fake.list_stored(LEASES)) == 2)
        assert all(lease["metadata"]["name"].startswith("podgate-server-") for lease in fake.list_stored(LEASES))
    assert fake.list_stored(LEASES) == []


async def test_servers_with_configured_replicas_request_no_lease(fake: FakeApiServer, files: Files) -> None:
    async with run_server(files, *kubeconfig_flags(files), *SHARED, "--replicas", "2"):
        assert fake.seen
    assert not any(request.path.startswith(LEASES) for request in fake.seen)


@pytest.mark.parametrize("has_cluster", [True, False])
async def test_counters_lost_by_a_restart_are_logged_at_the_start(
    fake: FakeApiServer, files: Files, *, has_cluster: bool
) -> None:
    assert fake.url
    async with run_server(files, *(kubeconfig_flags(files) if has_cluster else ()), "--drain", "0s"):
        log = (files.folder / "server-0.log").read_text()
        assert "counters are in memory and are lost when this process ends" in log
        assert ("without a cluster it cannot see whether other servers count" in log) is not has_cluster
