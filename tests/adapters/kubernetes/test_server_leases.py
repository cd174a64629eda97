"""Servers counted by their Leases: starts, ends, crashes, and API server outages."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Reported
from tests.harness.fake_apiserver import LEASES, FakeApiServer, Fault, drop, fake_apiserver, hang, refuse, say, until
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import ServerLeases, ServerLeaseTiming, connect
from webhook.adapters.kubernetes.server_leases import lease_name

QUICK = ServerLeaseTiming(duration_seconds=3600, renew_seconds=0.01, request_seconds=5)
OURS = {"app.kubernetes.io/name": "podgate", "podgate.io/part": "server"}


@dataclass
class OneServer(Reported):
    """A server's view, and what it has told."""

    leases: ServerLeases = field(init=False)
    counts: list[tuple[int, int]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    async def counts_so(self, count: int, ordinal: int) -> None:
        await until(lambda: self.counts[-1:] == [(count, ordinal)])

    async def rounds(self, number: int = 3) -> None:
        wanted = self.contacts + number
        await until(lambda: self.contacts >= wanted)

    def start(self) -> None:
        self.task = asyncio.create_task(self.leases.run())

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class World:
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
        return sorted(found["metadata"]["name"] for found in self.fake.under(LEASES))

    def left_behind(self, name: str, renewed_at: str, **labels: str) -> None:
        """Write a Lease that nobody renews."""
        spec = {"holderIdentity": "gone", "renewTime": renewed_at, "leaseDurationSeconds": 40}
        self.fake.put(LEASES, name, labels=labels or OURS, spec=spec)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        found = World(fake, client)
        yield found
        for server in found.servers:
            if server.task is not None:
                await server.end()


async def test_each_is_counted_and_the_rank_of_its_name_is_its_ordinal(world: World) -> None:
    servers = [world.server(host) for host in ("podgate-b", "podgate-c", "podgate-a")]
    for server, ordinal in zip(servers, (1, 2, 0), strict=True):
        await server.counts_so(3, ordinal)
    assert world.names() == [f"podgate-server-podgate-{letter}" for letter in "abc"]
    found = world.fake.stored(LEASES, "podgate-server-podgate-a")
    assert found is not None
    assert found["metadata"]["labels"].items() >= OURS.items()
    assert found["spec"]["holderIdentity"].startswith("podgate-a_")
    told = [len(server.counts) for server in servers]
    for server in servers:
        await server.rounds()
    assert [len(server.counts) for server in servers] == told, "only changes are told"


async def test_one_that_ends_takes_its_lease_along_and_counts_no_more(world: World) -> None:
    first, second = world.server("a"), world.server("b")
    await second.counts_so(2, 1)
    await first.end()
    await second.counts_so(1, 0)
    assert world.names() == ["podgate-server-b"]


async def test_one_that_dies_counts_until_its_lease_has_not_changed_for_its_time(world: World) -> None:
    world.left_behind("podgate-server-a", "2999-01-01T00:00:00.000000Z")
    server = world.server("b", duration_seconds=1)
    await server.counts_so(2, 1)
    await server.counts_so(1, 0)
    assert world.names() == ["podgate-server-a", "podgate-server-b"], "it may come back"


async def test_one_that_renews_lives_whatever_the_times_in_its_lease_say(world: World) -> None:
    async def renewed(request: web.Request) -> web.StreamResponse:
        world.left_behind("podgate-server-a", "1999-01-01T00:00:00.000000Z")
        return await world.fake.list(request)

    world.fake.always["list"] = renewed
    server = world.server("b", duration_seconds=1)
    await asyncio.sleep(1.2)
    await server.rounds()
    assert server.counts == [(2, 1)]


async def test_leases_of_others_do_not_count(world: World) -> None:
    world.left_behind("podgate-leader", "2999-01-01T00:00:00Z", **{"app.kubernetes.io/name": "podgate"})
    world.left_behind("podgate-server-x", "2999-01-01T00:00:00Z", team="another")
    server = world.server("z")
    await server.counts_so(1, 0)


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(403, "forbidden"), say(b"{}"), say(b"<html>")])
async def test_while_the_api_server_is_away_the_last_count_stays_and_the_trouble_is_reported_once(
    world: World, fault: Fault
) -> None:
    server, other = world.server("a"), world.server("b")
    await server.counts_so(2, 0)
    await other.counts_so(2, 1)
    world.fake.always |= {"list": fault, "update": fault, "create": fault}
    wanted = len(world.fake.seen) + 10
    await until(lambda: len(world.fake.seen) >= wanted)
    world.fake.always.clear()
    await until(lambda: bool(server.overs))
    await server.rounds()
    assert server.counts[-1] == (2, 0)
    assert server.troubles == server.overs
    assert len(server.troubles) == 1


async def test_an_api_server_that_hangs_is_asked_again(world: World) -> None:
    world.fake.next("list", hang)
    server = world.server("a", request_seconds=1)
    await server.counts_so(1, 0)
    assert "no answer in time" in server.overs[0]


async def test_who_lived_has_time_to_renew_after_the_api_server_was_away(world: World) -> None:
    """Nobody could renew meanwhile; who had been dead before stays so."""
    world.left_behind("podgate-server-dead", "2999-01-01T00:00:00Z")
    server, other = world.server("a", starts=False, duration_seconds=3), world.server("b", starts=False)
    server.start()
    await server.counts_so(1, 0)
    other.start()
    await server.counts_so(2, 0)
    world.fake.always = {"delete": drop}
    await other.end()
    await server.rounds()  # a renewal that it had not seen would be a change afterwards
    world.fake.always |= {"list": drop, "update": drop}
    await asyncio.sleep(3.2)  # longer than a Lease may stay as it is
    told: list[int] = []

    async def listed(request: web.Request) -> web.StreamResponse:
        told.append(len(server.counts))
        return await world.fake.list(request)

    world.fake.always = {"list": listed}
    await until(lambda: len(told) > 1)
    assert told[1] == told[0], "in the first round it may yet renew"
    await server.counts_so(1, 0)


async def test_what_dead_servers_left_behind_is_deleted_in_the_end(world: World) -> None:
    world.left_behind("podgate-server-old", "2020-01-01T00:00:00.000000Z")
    world.left_behind("podgate-server-new", "2999-01-01T00:00:00.000000Z")
    world.left_behind("podgate-server-odd", "yesterday")
    server = world.server("z", duration_seconds=1)
    await server.counts_so(1, 0)
    await until(lambda: "podgate-server-old" not in world.names())
    await server.rounds()
    assert world.names() == ["podgate-server-new", "podgate-server-odd", "podgate-server-z"]
    assert server.troubles == []


async def test_one_that_comes_back_at_that_moment_keeps_its_lease(world: World) -> None:
    world.left_behind("podgate-server-old", "2020-01-01T00:00:00.000000Z")
    deleted = asyncio.Event()

    async def late(request: Any) -> Any:
        if not deleted.is_set():
            deleted.set()
            world.left_behind("podgate-server-old", "2020-01-01T00:00:00.000000Z")
        return await world.fake._delete(request)

    world.fake.always["delete"] = late
    server = world.server("z", duration_seconds=1)
    await asyncio.wait_for(deleted.wait(), HANG_SECONDS)
    del world.fake.always["delete"]
    assert "podgate-server-old" in world.names()
    await server.counts_so(2, 1)
    assert server.troubles == []


async def test_a_container_started_again_in_its_pod_takes_its_former_lease(world: World) -> None:
    first = world.server("podgate-0")
    await first.counts_so(1, 0)
    again = world.server("podgate-0")
    await again.counts_so(1, 0)
    assert world.names() == ["podgate-server-podgate-0"]


async def test_two_servers_on_one_machine_are_two(world: World) -> None:
    servers = [world.server("laptop", is_unique=False) for _ in range(2)]
    for server in servers:
        await until(lambda server=server: server.counts[-1:] and server.counts[-1][0] == 2)  # type: ignore[misc]  # mypy: a default
    assert {server.counts[-1][1] for server in servers} == {0, 1}


async def test_a_lease_that_was_taken_away_is_made_again(world: World) -> None:
    server = world.server("a")
    await server.counts_so(1, 0)
    world.fake.remove(LEASES, "podgate-server-a")
    await until(lambda: world.names() == ["podgate-server-a"])
    assert server.counts == [(1, 0)]


async def test_one_that_cannot_take_its_lease_away_says_so_and_ends(world: World) -> None:
    world.fake.always["delete"] = refuse(403, "forbidden")
    server = world.server("a")
    await server.counts_so(1, 0)
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
def test_any_host_makes_a_name(host: str, name: str) -> None:
    assert lease_name(host) == name
