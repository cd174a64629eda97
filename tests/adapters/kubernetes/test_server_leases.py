"""Servers counted by their Leases: starts, ends, crashes, and API server outages."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Reported
from tests.harness.fake_apiserver import (
    LEASES,
    FakeApiServer,
    Fault,
    drop,
    fake_apiserver,
    hang,
    refuse,
    say,
    wait_until,
)
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import ServerLeases, ServerLeaseTiming, connect
from webhook.adapters.kubernetes.leases.server_leases import make_lease_name

QUICK = ServerLeaseTiming(duration_seconds=3600, renew_seconds=0.01, request_seconds=5)
OURS = {"app.kubernetes.io/name": "podgate", "podgate.io/part": "server"}


@dataclass
class OneServer(Reported):
    """A server's view, and its reports."""

    leases: ServerLeases = field(init=False)
    counts: list[tuple[int, int]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    async def has_count(self, count: int, ordinal: int) -> None:
        await wait_until(lambda: self.counts[-1:] == [(count, ordinal)])

    async def wait_for_rounds(self, number: int = 3) -> None:
        wanted = self.contacts + number
        await wait_until(lambda: self.contacts >= wanted)

    def start(self) -> None:
        self.task = asyncio.create_task(self.leases.run())

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Cluster:
    """A fake API server, and a connection to it that servers share."""

    fake: FakeApiServer
    client: Any
    servers: list[OneServer] = field(default_factory=list)

    def server(self, host: str, *, starts: bool = True, is_unique: bool = True, **timing: Any) -> OneServer:
        server = OneServer()
        paced = replace(QUICK, **timing)
        server.leases = ServerLeases(self.client, host, is_unique=is_unique, reports=server.reports, timing=paced)
        server.leases.on_count = lambda *counted: server.counts.append(counted)
        self.servers.append(server)
        if starts:
            server.start()
        return server

    def names(self) -> list[str]:
        return sorted(found["metadata"]["name"] for found in self.fake.list_stored(LEASES))

    def put_lease(self, name: str, renewed_at: str, **labels: str) -> None:
        """Write a Lease that no server renews."""
        spec = {"holderIdentity": "gone", "renewTime": renewed_at, "leaseDurationSeconds": 40}
        self.fake.put(LEASES, name, labels=labels or OURS, spec=spec)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        found = Cluster(fake, client)
        yield found
        for server in found.servers:
            if server.task is not None:
                await server.end()


async def test_servers_are_counted_and_ordered_by_lease_name(cluster: Cluster) -> None:
    servers = [cluster.server(host) for host in ("podgate-b", "podgate-c", "podgate-a")]
    for server, ordinal in zip(servers, (1, 2, 0), strict=True):
        await server.has_count(3, ordinal)
    assert cluster.names() == [f"podgate-server-podgate-{letter}" for letter in "abc"]
    found = cluster.fake.find_stored(LEASES, "podgate-server-podgate-a")
    assert found is not None
    assert found["metadata"]["labels"].items() >= OURS.items()
    assert found["spec"]["holderIdentity"].startswith("podgate-a_")
    counts_before = [len(server.counts) for server in servers]
    for server in servers:
        await server.wait_for_rounds()
    assert [len(server.counts) for server in servers] == counts_before, "only changes are reported"


async def test_ended_server_deletes_its_lease_and_is_not_counted(cluster: Cluster) -> None:
    first, second = cluster.server("a"), cluster.server("b")
    await second.has_count(2, 1)
    await first.end()
    await second.has_count(1, 0)
    assert cluster.names() == ["podgate-server-b"]


async def test_dead_server_is_counted_until_its_lease_expires(cluster: Cluster) -> None:
    cluster.put_lease("podgate-server-a", "2999-01-01T00:00:00.000000Z")
    server = cluster.server("b", duration_seconds=1)
    await server.has_count(2, 1)
    await server.has_count(1, 0)
    assert cluster.names() == ["podgate-server-a", "podgate-server-b"], "its server may restart"


async def test_renewed_lease_is_live_whatever_its_timestamps(cluster: Cluster) -> None:
    async def renew_and_list(request: web.Request) -> web.StreamResponse:
        cluster.put_lease("podgate-server-a", "1999-01-01T00:00:00.000000Z")
        return await cluster.fake.list(request)

    cluster.fake.always["list"] = renew_and_list
    server = cluster.server("b", duration_seconds=1)
    await asyncio.sleep(1.2)
    await server.wait_for_rounds()
    assert server.counts == [(2, 1)]


async def test_other_leases_are_not_counted(cluster: Cluster) -> None:
    cluster.put_lease("podgate-leader", "2999-01-01T00:00:00Z", **{"app.kubernetes.io/name": "podgate"})
    cluster.put_lease("podgate-server-x", "2999-01-01T00:00:00Z", team="another")
    server = cluster.server("z")
    await server.has_count(1, 0)


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(403, "forbidden"), say(b"{}"), say(b"<html>")])
async def test_outage_keeps_the_last_count_and_is_reported_once(cluster: Cluster, fault: Fault) -> None:
    server, other = cluster.server("a"), cluster.server("b")
    await server.has_count(2, 0)
    await other.has_count(2, 1)
    cluster.fake.always |= {"list": fault, "update": fault, "create": fault}
    wanted = len(cluster.fake.seen) + 10
    await wait_until(lambda: len(cluster.fake.seen) >= wanted)
    cluster.fake.always.clear()
    await wait_until(lambda: bool(server.overs))
    await server.wait_for_rounds()
    assert server.counts[-1] == (2, 0)
    assert server.troubles == server.overs
    assert len(server.troubles) == 1


async def test_request_without_an_answer_is_retried(cluster: Cluster) -> None:
    cluster.fake.fail_next("list", hang)
    server = cluster.server("a", request_seconds=1)
    await server.has_count(1, 0)
    assert "no answer in time" in server.overs[0]


async def test_outage_gives_servers_one_more_round_to_renew(cluster: Cluster) -> None:
    """No server could renew during the outage; a server that was dead before stays dead."""
    cluster.put_lease("podgate-server-dead", "2999-01-01T00:00:00Z")
    server, other = cluster.server("a", starts=False, duration_seconds=3), cluster.server("b", starts=False)
    server.start()
    await server.has_count(1, 0)
    other.start()
    await server.has_count(2, 0)
    cluster.fake.always = {"delete": drop}
    await other.end()
    await server.wait_for_rounds()  # a renewal that it had not seen would be a change afterwards
    cluster.fake.always |= {"list": drop, "update": drop}
    await asyncio.sleep(3.2)  # longer than a Lease may stay as it is
    counts_by_list: list[int] = []

    async def count_and_list(request: web.Request) -> web.StreamResponse:
        counts_by_list.append(len(server.counts))
        return await cluster.fake.list(request)

    cluster.fake.always = {"list": count_and_list}
    await wait_until(lambda: len(counts_by_list) > 1)
    assert counts_by_list[1] == counts_by_list[0], "in the first round it may yet renew"
    await server.has_count(1, 0)


async def test_leases_of_dead_servers_are_deleted(cluster: Cluster) -> None:
    cluster.put_lease("podgate-server-old", "2020-01-01T00:00:00.000000Z")
    cluster.put_lease("podgate-server-new", "2999-01-01T00:00:00.000000Z")
    cluster.put_lease("podgate-server-odd", "yesterday")
    server = cluster.server("z", duration_seconds=1)
    await server.has_count(1, 0)
    await wait_until(lambda: "podgate-server-old" not in cluster.names())
    await server.wait_for_rounds()
    assert cluster.names() == ["podgate-server-new", "podgate-server-odd", "podgate-server-z"]
    assert server.troubles == []


async def test_lease_renewed_during_its_deletion_is_kept(cluster: Cluster) -> None:
    cluster.put_lease("podgate-server-old", "2020-01-01T00:00:00.000000Z")
    deleted = asyncio.Event()

    async def renew_and_delete(request: Any) -> Any:
        if not deleted.is_set():
            deleted.set()
            cluster.put_lease("podgate-server-old", "2020-01-01T00:00:00.000000Z")
        return await cluster.fake._delete(request)

    cluster.fake.always["delete"] = renew_and_delete
    server = cluster.server("z", duration_seconds=1)
    await asyncio.wait_for(deleted.wait(), HANG_SECONDS)
    del cluster.fake.always["delete"]
    assert "podgate-server-old" in cluster.names()
    await server.has_count(2, 1)
    assert server.troubles == []


async def test_restarted_container_takes_its_former_lease(cluster: Cluster) -> None:
    first = cluster.server("podgate-0")
    await first.has_count(1, 0)
    again = cluster.server("podgate-0")
    await again.has_count(1, 0)
    assert cluster.names() == ["podgate-server-podgate-0"]


async def test_servers_on_one_host_have_separate_leases(cluster: Cluster) -> None:
    servers = [cluster.server("laptop", is_unique=False) for _ in range(2)]
    for server in servers:
        await wait_until(lambda server=server: server.counts[-1:] and server.counts[-1][0] == 2)  # type: ignore[misc]  # mypy: a default
    assert {server.counts[-1][1] for server in servers} == {0, 1}


async def test_deleted_lease_is_recreated(cluster: Cluster) -> None:
    server = cluster.server("a")
    await server.has_count(1, 0)
    cluster.fake.remove(LEASES, "podgate-server-a")
    await wait_until(lambda: cluster.names() == ["podgate-server-a"])
    assert server.counts == [(1, 0)]


async def test_forbidden_lease_deletion_is_reported_at_the_end(cluster: Cluster) -> None:
    cluster.fake.always["delete"] = refuse(403, "forbidden")
    server = cluster.server("a")
    await server.has_count(1, 0)
    await server.end()
    assert "grant the right to list, create, update and delete leases in podgate-system" in server.troubles[0]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("podgate-7d9c-x2v", "podgate-server-podgate-7d9c-x2v"),
        ("Host_1.example.", "podgate-server-host-1-example"),
        ("-.-", "podgate-server-unnamed"),
        ("a" * 62 + "--b", "podgate-server-" + "a" * 62),
    ],
)
def test_lease_name_is_valid_for_any_host(host: str, name: str) -> None:
    assert make_lease_name(host) == name
