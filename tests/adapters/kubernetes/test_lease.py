"""The Lease under which one server counts: holder, waiting, release, and API server outages."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
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
from webhook.adapters.kubernetes import Lease, LeaseTiming, connect
from webhook.errors import UserError

NAME = "podgate-leader"
THIS = "lease podgate-system/podgate-leader"
QUICK = LeaseTiming(duration_seconds=3600, renew_seconds=0.01, retry_seconds=0.01, request_seconds=5)


@dataclass
class Messages(Reported):
    """The reports of one holder."""

    waits: list[str] = field(default_factory=list)


@dataclass
class Cluster:
    """A fake API server, and a connection to it that holders share."""

    fake: FakeApiServer
    client: Any

    def lease(self, name: str, messages: Messages | None = None, *, is_unique: bool = False, **timing: Any) -> Lease:
        messages = messages or Messages()
        return Lease(
            self.client,
            name,
            is_unique=is_unique,
            reports=messages.reports,
            on_wait=messages.waits.append,
            timing=replace(QUICK, **timing),
        )

    def spec(self) -> dict[str, Any]:
        found = self.fake.find_stored(LEASES, NAME)
        assert found is not None
        spec: dict[str, Any] = found["spec"]
        return spec

    def put_lease(self, holder: str | None, **spec: Any) -> None:
        """Write the Lease as another holder does."""
        defaults = {
            "holderIdentity": holder,
            "acquireTime": "2001-02-03T04:05:06.000000Z",
            "leaseDurationSeconds": 3600,
        }
        self.fake.put(LEASES, NAME, spec=defaults | spec)

    async def wait_for_requests(self, verb: str = "get", times: int = 3) -> None:
        """Wait for this many more requests of the verb."""
        wanted = self.fake.verbs().count(verb) + times
        await wait_until(lambda: self.fake.verbs().count(verb) >= wanted)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        yield Cluster(fake, client)


@pytest.fixture
async def started() -> AsyncIterator[Callable[[Any], asyncio.Task[None]]]:
    """Return a function that starts a task, and cancel the tasks at the end of the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Start = Callable[[Any], asyncio.Task[None]]


# Acquisition


async def test_free_lease_is_acquired_at_once(cluster: Cluster) -> None:
    lease = cluster.lease("first")
    assert lease.obstacle == f"{THIS} has not been asked for yet"
    await lease.take(0)
    spec = cluster.spec()
    assert lease.obstacle == ""
    assert lease.identity.startswith("first_")
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (lease.identity, 3600, 0)
    assert spec["acquireTime"] == spec["renewTime"]


async def test_one_of_many_candidates_acquires_the_lease(cluster: Cluster) -> None:
    leases = [cluster.lease(f"racer-{number}") for number in range(10)]
    outcomes = await asyncio.gather(*(lease.take(0) for lease in leases), return_exceptions=True)
    [winner] = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
    assert all(isinstance(outcome, UserError) for outcome in outcomes if outcome is not None)
    assert cluster.spec()["holderIdentity"] == winner.identity
    assert cluster.spec()["leaseTransitions"] == 0


async def test_second_candidate_waits_until_the_lease_is_released(cluster: Cluster, started: Start) -> None:
    first, messages = cluster.lease("first"), Messages()
    second = cluster.lease("second", messages)
    await first.take()
    keeping = started(first.keep())
    taking = started(second.take())
    await cluster.wait_for_requests("update")
    assert not taking.done()
    since = cluster.spec()["acquireTime"]
    assert messages.waits == [second.obstacle] == [f"{THIS} is held by {first.identity} since {since}"], "reported once"
    keeping.cancel()
    await first.release()
    await taking
    assert cluster.spec()["holderIdentity"] == second.identity
    assert cluster.spec()["leaseTransitions"] == 1
    assert second.obstacle == ""


async def test_expired_wait_is_an_error_with_the_holder_its_time_and_a_remedy(cluster: Cluster) -> None:
    cluster.put_lease("other_1")
    with pytest.raises(UserError) as refused:
        await cluster.lease("second").take(0, "run one")
    assert str(refused.value) == f"{THIS} is held by other_1 since 2001-02-03T04:05:06.000000Z"
    assert refused.value.remedy == "run one"
    assert cluster.spec()["holderIdentity"] == "other_1"


async def test_unrenewed_lease_expires_after_its_duration(cluster: Cluster) -> None:
    cluster.put_lease("killed_1", leaseDurationSeconds=1, renewTime="2999-01-01T00:00:00.000000Z")
    messages, before = Messages(), len(cluster.fake.seen)
    await cluster.lease("second", messages).take()
    assert "killed_1" in messages.waits[0]
    assert len(cluster.fake.seen) > before + 5, "it was read several times"


async def test_renewed_lease_stays_valid_whatever_its_timestamps(cluster: Cluster, started: Start) -> None:

    async def renew_and_read(request: web.Request) -> web.StreamResponse:
        cluster.put_lease("other_1", leaseDurationSeconds=1, renewTime="1970-01-01T00:00:00.000000Z")
        found = cluster.fake.find_stored(LEASES, request.path.rpartition("/")[2])
        return web.json_response(found)

    cluster.fake.always["get"] = renew_and_read
    taking = started(cluster.lease("second").take())
    await asyncio.sleep(1.2)
    assert not taking.done()


@pytest.mark.parametrize("holder", ["", None])
async def test_lease_without_a_holder_is_free(cluster: Cluster, holder: str | None) -> None:
    cluster.put_lease(holder, leaseTransitions=6)
    await cluster.lease("second").take(0)
    assert cluster.spec()["leaseTransitions"] == 7


async def test_empty_lease_is_free(cluster: Cluster) -> None:
    cluster.fake.put(LEASES, NAME, labels={"team": "a"})
    await cluster.lease("second").take(0)
    found = cluster.fake.find_stored(LEASES, NAME)
    assert found is not None
    assert found["metadata"]["labels"] == {"team": "a"}


async def test_restarted_container_takes_over_its_own_lease(cluster: Cluster) -> None:
    await cluster.lease("podgate-0", is_unique=True).take()
    with pytest.raises(UserError):
        await cluster.lease("podgate-0").take(0)
    with pytest.raises(UserError):
        await cluster.lease("podgate", is_unique=True).take(0)
    await cluster.lease("podgate-0", is_unique=True).take(0)


# API server outages and refusals


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(429, "busy"), say(b"{}"), say(b"<html>")])
async def test_candidate_waits_for_an_answer_beyond_its_limit(cluster: Cluster, started: Start, fault: Fault) -> None:
    cluster.fake.always["get"] = fault
    messages = Messages()
    lease = cluster.lease("first", messages)
    taking = started(lease.take(0))
    await cluster.wait_for_requests()
    assert not taking.done()
    assert messages.troubles == [lease.obstacle], "reported once"
    assert lease.obstacle.startswith(f"cannot hold {THIS}: ")
    assert messages.waits == []
    del cluster.fake.always["get"]
    await taking
    assert messages.overs == messages.troubles


async def test_request_without_an_answer_is_retried(cluster: Cluster) -> None:
    cluster.fake.fail_next("get", hang)
    messages = Messages()
    await cluster.lease("first", messages, request_seconds=1).take()
    assert "no answer in time" in messages.overs[0]


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
    cluster: Cluster, verb: str, fault: Fault, words: str
) -> None:
    cluster.fake.always[verb] = fault
    with pytest.raises(UserError, match=words):
        await cluster.lease("first").take(0)


async def test_expiry_starts_again_after_an_api_server_outage(cluster: Cluster, started: Start) -> None:
    """The holder could not renew during the outage either."""
    cluster.put_lease("other_1", leaseDurationSeconds=1)
    cluster.fake.fail_next("get", cluster.fake._get)  # one look begins the second
    cluster.fake.always["get"] = drop
    taking = started(cluster.lease("second").take())
    await cluster.wait_for_requests()
    await asyncio.sleep(1.2)
    del cluster.fake.always["get"]
    cluster.fake.seen.clear()
    await taking
    assert cluster.fake.verbs()[:2] == ["get", "get"], "the first read after the outage starts the duration"


# Renewal


async def test_lease_is_renewed_by_its_holder(cluster: Cluster, started: Start) -> None:
    messages = Messages()
    lease = cluster.lease("first", messages)
    await lease.take()
    taken = dict(cluster.spec())
    keeping = started(lease.keep())
    await cluster.wait_for_requests("update")
    assert not keeping.done()
    renewed = cluster.spec()
    assert renewed.pop("renewTime") > taken.pop("renewTime")
    assert renewed == taken
    await wait_until(lambda: messages.contacts >= 4)  # the last response may still be under way


@pytest.mark.parametrize("fault", [drop, refuse(503), refuse(403, "forbidden"), refuse(429), say(b"{}")])
async def test_unavailable_api_server_ends_no_lease(cluster: Cluster, started: Start, fault: Fault) -> None:
    messages = Messages()
    lease = cluster.lease("first", messages, duration_seconds=1)
    await lease.take()
    keeping = started(lease.keep())
    cluster.fake.always["get"] = fault
    await wait_until(lambda: bool(messages.troubles))
    await asyncio.sleep(1.2)
    assert not keeping.done()
    assert lease.obstacle == ""
    assert len(messages.troubles) == 1
    del cluster.fake.always["get"]
    await cluster.wait_for_requests("update")
    assert not keeping.done()
    assert messages.overs == messages.troubles


async def test_holder_that_reads_another_holder_leaves(cluster: Cluster, started: Start) -> None:
    lease = cluster.lease("first")
    await lease.take()
    keeping = started(lease.keep("run one"))
    await cluster.wait_for_requests("update")
    cluster.put_lease("other_1")
    with pytest.raises(UserError, match=f"{THIS} was not renewed in time, and is held by other_1 since 2001") as lost:
        await keeping
    assert lost.value.remedy == "run one"
    assert lease.obstacle == str(lost.value), "it is no longer ready"
    await lease.release()
    assert cluster.spec()["holderIdentity"] == "other_1"


async def test_deleted_or_changed_lease_is_kept(cluster: Cluster, started: Start) -> None:
    async def change_meanwhile(request: web.Request) -> web.StreamResponse:
        cluster.put_lease(lease.identity, preferredHolder="somebody")
        return await cluster.fake.change(request)

    lease = cluster.lease("first")
    await lease.take()
    cluster.fake.fail_next("update", change_meanwhile)
    keeping = started(lease.keep())
    await cluster.wait_for_requests("update")
    assert cluster.spec()["preferredHolder"] == "somebody"
    cluster.fake.remove(LEASES, NAME)
    await cluster.wait_for_requests("update")
    assert cluster.spec()["holderIdentity"] == lease.identity
    assert not keeping.done()


# Release


async def test_release_is_repeated_after_a_late_renewal(cluster: Cluster) -> None:
    async def renew_and_change(request: web.Request) -> web.StreamResponse:
        cluster.put_lease(lease.identity)
        return await cluster.fake.change(request)

    lease = cluster.lease("first")
    await lease.take()
    cluster.fake.fail_next("update", renew_and_change)
    await lease.release()
    assert cluster.spec()["holderIdentity"] is None
    await cluster.lease("second").take(0)


async def test_failed_release_is_reported(cluster: Cluster) -> None:
    messages = Messages()
    lease = cluster.lease("first", messages)
    await lease.take()
    cluster.fake.always["get"] = drop
    await lease.release()
    assert messages.troubles[0].startswith(f"cannot release {THIS}: ")


async def test_release_without_a_lease_does_nothing(cluster: Cluster) -> None:
    await cluster.lease("first").release()
    assert cluster.fake.verbs() == ["get"]


# Work under the lease


class Work:
    """Work that is allowed only under the lease."""

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


async def test_work_runs_on_the_holder_only(cluster: Cluster, started: Start) -> None:
    first, second = cluster.lease("first"), cluster.lease("second")
    working, waiting = Work(), Work()
    leading = started(first.lead(working))
    await wait_until(lambda: working.is_running)
    started(second.lead(waiting))
    await cluster.wait_for_requests("update")
    assert (working.is_running, waiting.is_running) == (True, False)
    assert (first.obstacle, first.trouble, second.trouble) == ("", "", "")
    leading.cancel()
    await asyncio.wait([leading])
    assert not working.is_running
    await first.release()
    await wait_until(lambda: waiting.is_running)


async def test_work_stops_under_another_holder_and_restarts_on_release(cluster: Cluster, started: Start) -> None:
    lease, work = cluster.lease("first"), Work()
    started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    cluster.put_lease("other_1")
    await wait_until(lambda: not work.is_running)
    assert "other_1" in lease.obstacle
    assert lease.trouble == "", "a standby has no trouble"
    cluster.put_lease(None)
    await wait_until(lambda: work.is_running)


@pytest.mark.parametrize("fault", [refuse(500), refuse(403), drop, hang])
async def test_work_stops_when_renewal_times_out(cluster: Cluster, started: Start, fault: Fault) -> None:
    lease, work = cluster.lease("first", duration_seconds=1, request_seconds=1), Work()
    started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    cluster.fake.always["update"] = fault
    await wait_until(lambda: not work.is_running)
    assert cluster.spec()["holderIdentity"] == lease.identity, "no other holder has written it"
    await wait_until(lambda: bool(lease.trouble))
    assert lease.obstacle
    del cluster.fake.always["update"]
    await wait_until(lambda: work.is_running and (lease.obstacle, lease.trouble) == ("", ""))


async def test_work_stops_after_a_stall_of_the_process_longer_than_the_duration(
    cluster: Cluster, started: Start
) -> None:
    """The duration of the Lease and the timeout of a renewal expire in the same turn of the event loop."""
    lease, work = cluster.lease("first", duration_seconds=1, request_seconds=1), Work()
    started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    cluster.fake.always["update"] = hang
    await cluster.wait_for_requests("update", 1)
    time.sleep(1.5)  # noqa: ASYNC251  stalls the event loop
    await wait_until(lambda: not work.is_running)
    del cluster.fake.always["update"]
    await wait_until(lambda: work.is_running)


async def test_work_stops_in_time_though_a_renewal_ignores_its_cancellation(
    cluster: Cluster, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, work, may_end = cluster.lease("first", duration_seconds=1), Work(), asyncio.Event()

    async def ignore_cancellation(_: object) -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    monkeypatch.setattr(lease, "_attempt", ignore_cancellation)
    try:
        await wait_until(lambda: not work.is_running)
    finally:
        may_end.set()


async def test_work_continues_through_brief_renewal_failures(cluster: Cluster, started: Start) -> None:
    lease, work = cluster.lease("first"), Work()
    started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    cluster.fake.fail_next("update", refuse(500), refuse(409), refuse(429))
    await cluster.wait_for_requests("update", 6)
    assert (len(work.found), work.is_running) == (1, True)


async def test_failed_work_raises_and_can_restart(cluster: Cluster, started: Start) -> None:
    lease, work = cluster.lease("first"), Work()
    work.faults.append(LookupError("a defect"))
    with pytest.raises(LookupError):
        await lease.lead(work)
    started(lease.lead(work))
    await wait_until(lambda: work.is_running)


async def test_annotations_of_the_holder_reach_the_next_leader(cluster: Cluster, started: Start) -> None:
    notes: dict[str, str] = {}
    messages = Messages()
    lease = Lease(
        cluster.client,
        "a",
        is_unique=False,
        reports=messages.reports,
        on_wait=lambda _: None,
        notes=lambda: notes,
        timing=QUICK,
    )
    work, next_work = Work(), Work()
    leading = started(lease.lead(work))
    await wait_until(lambda: work.is_running)
    notes["podgate.io/watched-version"] = "7"
    await cluster.wait_for_requests("update")
    notes["podgate.io/watched-version"] = "8"
    await cluster.wait_for_requests("update")
    notes.clear()
    await cluster.wait_for_requests("update")
    leading.cancel()
    await asyncio.wait([leading])
    notes["podgate.io/watched-version"] = "9"
    await lease.release()
    started(cluster.lease("b").lead(next_work))
    await wait_until(lambda: next_work.is_running)
    assert (work.found, next_work.found) == ([{}], [{"podgate.io/watched-version": "9"}])
