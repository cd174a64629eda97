"""The Lease under which one server counts: holder, waiting, release, and API server outages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.adapters.kubernetes.watching import Reported
from tests.harness.fake_apiserver import LEASES, FakeApiServer, Fault, drop, fake_apiserver, hang, refuse, say, until
from webhook.adapters.kubernetes import Lease, LeaseTiming, connect
from webhook.errors import UserError

NAME = "podgate-leader"
THIS = "lease podgate-system/podgate-leader"
QUICK = LeaseTiming(duration_seconds=3600, renew_seconds=0.01, retry_seconds=0.01, request_seconds=5)


@dataclass
class Told(Reported):
    """What one holder has told."""

    waits: list[str] = field(default_factory=list)


@dataclass
class World:
    """A fake API server, and a connection to it that holders share."""

    fake: FakeApiServer
    client: Any

    def lease(self, name: str, told: Told | None = None, *, is_unique: bool = False, **timing: Any) -> Lease:
        told = told or Told()
        return Lease(
            self.client,
            name,
            is_unique=is_unique,
            reports=told.reports,
            on_wait=told.waits.append,
            timing=replace(QUICK, **timing),
        )

    def spec(self) -> dict[str, Any]:
        found = self.fake.stored(LEASES, NAME)
        assert found is not None
        spec: dict[str, Any] = found["spec"]
        return spec

    def written(self, holder: str | None, **spec: Any) -> None:
        """Write it as somebody else would."""
        told = {"holderIdentity": holder, "acquireTime": "2001-02-03T04:05:06.000000Z", "leaseDurationSeconds": 3600}
        self.fake.put(LEASES, NAME, spec=told | spec)

    async def asked_again(self, verb: str = "get", times: int = 3) -> None:
        """Wait until it was asked for some more times."""
        wanted = self.fake.verbs().count(verb) + times
        await until(lambda: self.fake.verbs().count(verb) >= wanted)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        yield World(fake, client)


@pytest.fixture
async def started() -> AsyncIterator[Callable[[Any], asyncio.Task[None]]]:
    """Return what runs something until it has ended, or the test has."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Start = Callable[[Any], asyncio.Task[None]]


# Taking it


async def test_free_lease_is_acquired_at_once(world: World) -> None:
    lease = world.lease("first")
    assert lease.obstacle == f"{THIS} has not been asked for yet"
    await lease.take(0)
    spec = world.spec()
    assert lease.obstacle == ""
    assert lease.identity.startswith("first_")
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (lease.identity, 3600, 0)
    assert spec["acquireTime"] == spec["renewTime"]


async def test_one_of_many_candidates_acquires_the_lease(world: World) -> None:
    leases = [world.lease(f"racer-{number}") for number in range(10)]
    outcomes = await asyncio.gather(*(lease.take(0) for lease in leases), return_exceptions=True)
    [winner] = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
    assert all(isinstance(outcome, UserError) for outcome in outcomes if outcome is not None)
    assert world.spec()["holderIdentity"] == winner.identity
    assert world.spec()["leaseTransitions"] == 0


async def test_second_candidate_waits_until_the_lease_is_released(world: World, started: Start) -> None:
    first, told = world.lease("first"), Told()
    second = world.lease("second", told)
    await first.take()
    keeping = started(first.keep())
    taking = started(second.take())
    await world.asked_again("update")
    assert not taking.done()
    since = world.spec()["acquireTime"]
    assert told.waits == [second.obstacle] == [f"{THIS} is held by {first.identity} since {since}"], "told once"
    keeping.cancel()
    await first.release()
    await taking
    assert world.spec()["holderIdentity"] == second.identity
    assert world.spec()["leaseTransitions"] == 1
    assert second.obstacle == ""


async def test_expired_wait_is_an_error_with_the_holder_its_time_and_a_remedy(world: World) -> None:
    world.written("other_1")
    with pytest.raises(UserError) as refused:
        await world.lease("second").take(0, "run one")
    assert str(refused.value) == f"{THIS} is held by other_1 since 2001-02-03T04:05:06.000000Z"
    assert refused.value.remedy == "run one"
    assert world.spec()["holderIdentity"] == "other_1"


async def test_unrenewed_lease_expires_after_its_duration(world: World) -> None:
    world.written("killed_1", leaseDurationSeconds=1, renewTime="2999-01-01T00:00:00.000000Z")
    told, before = Told(), len(world.fake.seen)
    await world.lease("second", told).take()
    assert "killed_1" in told.waits[0]
    assert len(world.fake.seen) > before + 5, "it has been watched for a while"


async def test_renewed_lease_stays_valid_whatever_its_timestamps(world: World, started: Start) -> None:

    async def renewed(request: web.Request) -> web.StreamResponse:
        world.written("other_1", leaseDurationSeconds=1, renewTime="1970-01-01T00:00:00.000000Z")
        found = world.fake.stored(LEASES, request.path.rpartition("/")[2])
        return web.json_response(found)

    world.fake.always["get"] = renewed
    taking = started(world.lease("second").take())
    await asyncio.sleep(1.2)
    assert not taking.done()


@pytest.mark.parametrize("holder", ["", None])
async def test_lease_without_a_holder_is_free(world: World, holder: str | None) -> None:
    world.written(holder, leaseTransitions=6)
    await world.lease("second").take(0)
    assert world.spec()["leaseTransitions"] == 7


async def test_empty_lease_is_free(world: World) -> None:
    world.fake.put(LEASES, NAME, labels={"team": "a"})
    await world.lease("second").take(0)
    found = world.fake.stored(LEASES, NAME)
    assert found is not None
    assert found["metadata"]["labels"] == {"team": "a"}


async def test_a_container_started_again_in_its_pod_does_not_wait_for_itself(world: World) -> None:
    await world.lease("podgate-0", is_unique=True).take()
    with pytest.raises(UserError):
        await world.lease("podgate-0").take(0)
    with pytest.raises(UserError):
        await world.lease("podgate", is_unique=True).take(0)
    await world.lease("podgate-0", is_unique=True).take(0)


# An API server that is away, or that refuses


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(429, "busy"), say(b"{}"), say(b"<html>")])
async def test_candidate_waits_for_an_answer_beyond_its_limit(world: World, started: Start, fault: Fault) -> None:
    world.fake.always["get"] = fault
    told = Told()
    lease = world.lease("first", told)
    taking = started(lease.take(0))
    await world.asked_again()
    assert not taking.done()
    assert told.troubles == [lease.obstacle], "told once"
    assert lease.obstacle.startswith(f"cannot hold {THIS}: ")
    assert told.waits == []
    del world.fake.always["get"]
    await taking
    assert told.overs == told.troubles


async def test_an_api_server_that_hangs_is_asked_again(world: World) -> None:
    world.fake.next("get", hang)
    told = Told()
    await world.lease("first", told, request_seconds=1).take()
    assert "no answer in time" in told.overs[0]


@pytest.mark.parametrize(
    ("verb", "fault", "words"),
    [
        ("get", refuse(403, "forbidden"), "grant the right to create leases in podgate-system, and to get and update"),
        ("create", refuse(403, "forbidden"), "grant the right to create leases in podgate-system, and to get"),
        ("create", refuse(404, 'namespaces "podgate-system" not found'), 'namespaces "podgate-system" not found'),
        ("get", refuse(401), "the credentials are not accepted"),
    ],
)
async def test_forbidden_candidate_fails_at_the_end_of_its_wait(
    world: World, verb: str, fault: Fault, words: str
) -> None:
    world.fake.always[verb] = fault
    with pytest.raises(UserError, match=words):
        await world.lease("first").take(0)


async def test_a_holder_has_all_its_time_again_after_the_api_server_was_away(world: World, started: Start) -> None:
    """It may have found nobody to renew with, as the one that waits."""
    world.written("other_1", leaseDurationSeconds=1)
    world.fake.next("get", world.fake._get)  # one look begins the second
    world.fake.always["get"] = drop
    taking = started(world.lease("second").take())
    await world.asked_again()
    await asyncio.sleep(1.2)
    del world.fake.always["get"]
    world.fake.seen.clear()
    await taking
    assert world.fake.verbs()[:2] == ["get", "get"], "the first look after that begins to count"


# Keeping it


async def test_it_is_renewed_under_its_holders_name(world: World, started: Start) -> None:
    told = Told()
    lease = world.lease("first", told)
    await lease.take()
    taken = dict(world.spec())
    keeping = started(lease.keep())
    await world.asked_again("update")
    assert not keeping.done()
    renewed = world.spec()
    assert renewed.pop("renewTime") > taken.pop("renewTime")
    assert renewed == taken
    assert told.contacts >= 4


@pytest.mark.parametrize("fault", [drop, refuse(503), refuse(403, "forbidden"), refuse(429), say(b"{}")])
async def test_unavailable_api_server_ends_no_lease(world: World, started: Start, fault: Fault) -> None:
    told = Told()
    lease = world.lease("first", told, duration_seconds=1)
    await lease.take()
    keeping = started(lease.keep())
    world.fake.always["get"] = fault
    await until(lambda: bool(told.troubles))
    await asyncio.sleep(1.2)
    assert not keeping.done()
    assert lease.obstacle == ""
    assert len(told.troubles) == 1
    del world.fake.always["get"]
    await world.asked_again("update")
    assert not keeping.done()
    assert told.overs == told.troubles


async def test_holder_that_reads_another_holder_leaves(world: World, started: Start) -> None:
    lease = world.lease("first")
    await lease.take()
    keeping = started(lease.keep("run one"))
    await world.asked_again("update")
    world.written("other_1")
    with pytest.raises(UserError, match=f"{THIS} was not renewed in time, and is held by other_1 since 2001") as lost:
        await keeping
    assert lost.value.remedy == "run one"
    assert lease.obstacle == str(lost.value), "it is no longer ready"
    await lease.release()
    assert world.spec()["holderIdentity"] == "other_1"


async def test_deleted_or_changed_lease_is_kept(world: World, started: Start) -> None:
    async def meanwhile(request: web.Request) -> web.StreamResponse:
        world.written(lease.identity, preferredHolder="somebody")
        return await world.fake.change(request)

    lease = world.lease("first")
    await lease.take()
    world.fake.next("update", meanwhile)
    keeping = started(lease.keep())
    await world.asked_again("update")
    assert world.spec()["preferredHolder"] == "somebody"
    world.fake.remove(LEASES, NAME)
    await world.asked_again("update")
    assert world.spec()["holderIdentity"] == lease.identity
    assert not keeping.done()


# Letting go of it


async def test_a_release_overtaken_by_a_late_renewal_is_repeated(world: World) -> None:
    async def late(request: web.Request) -> web.StreamResponse:
        world.written(lease.identity)
        return await world.fake.change(request)

    lease = world.lease("first")
    await lease.take()
    world.fake.next("update", late)
    await lease.release()
    assert world.spec()["holderIdentity"] is None
    await world.lease("second").take(0)


async def test_a_release_without_an_answer_is_reported_and_no_more(world: World) -> None:
    told = Told()
    lease = world.lease("first", told)
    await lease.take()
    world.fake.always["get"] = drop
    await lease.release()
    assert told.troubles[0].startswith(f"cannot release {THIS}: ")


async def test_release_without_a_lease_does_nothing(world: World) -> None:
    await world.lease("first").release()
    assert world.fake.verbs() == ["get"]


# Leading by it


class Work:
    """What may be done only under the lease."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []
        self.is_running = False
        self.faults: list[Exception] = []

    async def __call__(self, found: Mapping[str, str]) -> None:
        self.found.append(dict(found))
        self.is_running = True
        try:
            if self.faults:
                raise self.faults.pop()
            await asyncio.Event().wait()
        finally:
            self.is_running = False


async def test_work_runs_on_the_holder_only(world: World, started: Start) -> None:
    first, second = world.lease("first"), world.lease("second")
    working, waiting = Work(), Work()
    leading = started(first.lead(working))
    await until(lambda: working.is_running)
    started(second.lead(waiting))
    await world.asked_again("update")
    assert (working.is_running, waiting.is_running) == (True, False)
    assert (first.obstacle, first.trouble, second.trouble) == ("", "", "")
    leading.cancel()
    await asyncio.wait([leading])
    assert not working.is_running
    await first.release()
    await until(lambda: waiting.is_running)


async def test_work_ends_when_another_has_it_and_begins_again_when_it_is_free(world: World, started: Start) -> None:
    lease, work = world.lease("first"), Work()
    started(lease.lead(work))
    await until(lambda: work.is_running)
    world.written("other_1")
    await until(lambda: not work.is_running)
    assert "other_1" in lease.obstacle
    assert lease.trouble == "", "to stand by is no trouble"
    world.written(None)
    await until(lambda: work.is_running)


@pytest.mark.parametrize("fault", [refuse(500), refuse(403), drop, hang])
async def test_work_ends_when_it_could_not_be_renewed_in_time(world: World, started: Start, fault: Fault) -> None:
    lease, work = world.lease("first", duration_seconds=1, request_seconds=1), Work()
    started(lease.lead(work))
    await until(lambda: work.is_running)
    world.fake.always["update"] = fault
    await until(lambda: not work.is_running)
    assert world.spec()["holderIdentity"] == lease.identity, "nobody else has it: others may take us for dead"
    await until(lambda: bool(lease.trouble))
    assert lease.obstacle
    del world.fake.always["update"]
    await until(lambda: work.is_running and (lease.obstacle, lease.trouble) == ("", ""))


async def test_work_goes_on_while_renewals_fail_for_a_moment(world: World, started: Start) -> None:
    lease, work = world.lease("first"), Work()
    started(lease.lead(work))
    await until(lambda: work.is_running)
    world.fake.next("update", refuse(500), refuse(409), refuse(429))
    await world.asked_again("update", 6)
    assert (len(work.found), work.is_running) == (1, True)


async def test_work_that_fails_is_reported_and_may_begin_again(world: World, started: Start) -> None:
    lease, work = world.lease("first"), Work()
    work.faults.append(LookupError("a defect"))
    with pytest.raises(LookupError):
        await lease.lead(work)
    started(lease.lead(work))
    await until(lambda: work.is_running)


async def test_annotations_are_written_with_renewals_for_the_next_leader(world: World, started: Start) -> None:
    notes: dict[str, str] = {}
    told = Told()
    lease = Lease(
        world.client,
        "a",
        is_unique=False,
        reports=told.reports,
        on_wait=lambda _: None,
        notes=lambda: notes,
        timing=QUICK,
    )
    work, next_work = Work(), Work()
    leading = started(lease.lead(work))
    await until(lambda: work.is_running)
    notes["podgate.io/watched-version"] = "7"
    await world.asked_again("update")
    notes["podgate.io/watched-version"] = "8"
    await world.asked_again("update")
    notes.clear()
    await world.asked_again("update")
    leading.cancel()
    await asyncio.wait([leading])
    notes["podgate.io/watched-version"] = "9"
    await lease.release()
    started(world.lease("b").lead(next_work))
    await until(lambda: next_work.is_running)
    assert (work.found, next_work.found) == ([{}], [{"podgate.io/watched-version": "9"}])
