"""Overloaded servers on a real control plane: Pods wait, none is denied or lost, and all are released by the limit."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.controller_fixture import leads
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.queue import is_gated
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.redis_servers import RedisServer, names, program
from tests.timeouts import HANG_SECONDS

HARD, PODS = 4, 7
SERVICES = ("queues", "denies")
SLOW_SECONDS = 0.6
FLAGS = (
    *("--drain", "0s", "--store-deadline", "8s", "--decision-listen", "127.0.0.1:0"),
    *("--overload-p99", "500ms", "--overload-window", "2s", "--overload-minimum", "3"),
)
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults:
  quota:
    windows: [{window: 4s, hard: {pods: 4}}]
    whenStoreUnavailable: Deny
    queue: {maxPods: 50, onOverload: Gate}
services:
- {name: queues, match: {namespaces: [overload-queues]}, quota: {whenExceeded: Queue}}
- {name: denies, match: {namespaces: [overload-denies]}}
"""


class SlowRelay:
    """A relay to a Redis whose replies come `delay_seconds` late."""

    def __init__(self, port: int) -> None:
        self.delay_seconds = 0.0
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def close(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self._port)
            late = asyncio.create_task(self._pump(from_redis, writer, is_reply=True))
            self._tasks.add(late)
            late.add_done_callback(self._tasks.discard)
            await self._pump(reader, to_redis, is_reply=False)
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if is_reply:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(chunk)
                await writer.drain()
        writer.close()


class Running:
    """An installation of one server, which reaches its Redis through a relay, and one controller."""

    def __init__(self, installation: Installation, redis: RedisServer, relay: SlowRelay, server: Server) -> None:
        self.installation, self.redis, self.relay, self.server = installation, redis, relay, server

    def reasons(self) -> list[str]:
        overload = self.server.status()["overload"]
        return [] if overload is None else [reason["reason"] for reason in overload["reasons"]]

    def wait(self, *args: Any) -> Any:
        processes = [process.name for process in (*self.installation.servers, *self.installation.controllers)]
        return self.installation.plane.wait(*args, *processes)

    def notes(self, reason: str) -> str:
        """Return the notes of all Events with this reason, which are written a moment after their cause."""
        events = self.installation.plane.api.get("/apis/events.k8s.io/v1/namespaces/podgate-system/events")["items"]
        return "\n".join(event["note"] for event in events if event["reason"] == reason)

    def pods(self, service: str, app: str) -> list[dict[str, Any]]:
        pods = self.installation.pods(f"overload-{service}")
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == app]

    def deploy(self, service: str, app: str) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
        template = {"metadata": {"labels": {"app": app}}, "spec": spec}
        body = {"replicas": PODS, "selector": {"matchLabels": {"app": app}}, "template": template}
        metadata = {"name": app, "namespace": f"overload-{service}"}
        self.installation.plane.apply(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": body}
        )


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    namespaces = [f"overload-{service}" for service in SERVICES]
    folder: Path = tmp_path_factory.mktemp("overload")
    with (
        RedisServer(program(names()[0]), folder / "redis") as redis,
        closing(BackgroundLoop("slow-redis")) as loop,
        install_podgate(plane, identities.files, POLICY, namespaces, servers=0) as installation,
    ):
        relay = SlowRelay(redis.port)
        url = loop.run(relay.start())
        installation.program = SHORT_INTERVALS
        server = installation.start_server("--store", url, *FLAGS)
        controller = installation.start_controller("--store", redis.url)
        installation.wait_for_calls()
        plane.wait(lambda: leads(controller), "the controller to list all Pods", controller.name)
        yield Running(installation, redis, relay, server)
        loop.run(relay.close())


@pytest.mark.parametrize("outage", ["paused", "killed"])
def test_pods_of_an_outage_wait_and_are_all_released_at_the_rate_of_their_limits(running: Running, outage: str) -> None:
    server = running.server
    denied = server.total("podgate_reviews_total", 'decision="Deny"')
    gated = server.total("podgate_overload_gated_total")
    getattr(running.redis, {"paused": "pause", "killed": "kill"}[outage])()
    running.wait(lambda: "store" in running.reasons(), "the server to miss its store")
    for service in SERVICES:
        running.deploy(service, outage)

    def have_all_waited() -> bool:
        return all([is_gated(pod) for pod in running.pods(service, outage)] == [True] * PODS for service in SERVICES)

    running.wait(have_all_waited, "all Pods to wait")
    assert server.total("podgate_overload_gated_total") - gated == PODS * len(SERVICES)
    assert server.metrics()['podgate_overload{reason="store"}'] == 1
    decisions = f"http://{server.decisions}/api/v1/decisions?namespace=overload-denies"
    with urlopen(decisions, timeout=HANG_SECONDS) as response:
        assert "this server is overloaded: the store does not respond: " in response.read().decode()

    getattr(running.redis, {"paused": "resume", "killed": "start"}[outage])()
    used: list[int] = []

    def have_all_run() -> bool:
        rows = {row["name"]: row["windows"][0] for row in server.status()["services"]}
        used.extend(rows[service]["used"] or 0 for service in SERVICES)
        phases = [pod["status"]["phase"] for service in SERVICES for pod in running.pods(service, outage)]
        return phases == ["Running"] * PODS * len(SERVICES)

    running.wait(have_all_run, "all Pods to run")
    assert max(used) == HARD, used
    assert server.total("podgate_reviews_total", 'decision="Deny"') == denied
    running.wait(lambda: not running.reasons(), "the overload to end")
    running.wait(lambda: "the store does not respond" in running.notes("Overloaded"), "the Event about the overload")
    running.wait(lambda: running.notes("OverloadEnded"), "the Event about its end")


def test_a_slow_server_gates_until_it_is_fast_again(running: Running) -> None:
    numbers = count()

    def dry_runs() -> list[dict[str, Any]]:
        """Return the Pods of six simultaneous dry runs: one after the other, each would be a probe."""
        create = partial(running.installation.create_pod, "overload-denies", dry_run=True)
        with ThreadPoolExecutor(6) as pool:
            responses = list(pool.map(create, [f"dry-{next(numbers)}" for _ in range(6)]))
        assert all(status == 201 for status, _ in responses), responses
        return [pod for _, pod in responses]

    def is_gating() -> bool:
        return any(is_gated(pod) for pod in dry_runs())

    running.wait(lambda: not running.reasons() and not is_gating(), "no overload")
    running.relay.delay_seconds = SLOW_SECONDS
    running.wait(is_gating, "Pods to be gated")
    messages = {reason["reason"]: reason["message"] for reason in running.server.status()["overload"]["reasons"]}
    assert messages["latency"].startswith("P99 of reviews "), messages
    assert messages["latency"].endswith(" above 500 ms over 2 s"), messages

    running.relay.delay_seconds = 0.0
    running.wait(lambda: not is_gating() and not running.reasons(), "the overload to end")
    assert "no longer overloaded" in running.installation.log(running.server, 5000)
