"""The loop of the tasks: the leader repeats them and reports each error once."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from kubernetes_asyncio.client import ApiClient

from certs.cluster import loop
from certs.cluster.api import Api, OvertakenError
from certs.cluster.loop import OTHER, Action, TaskReports, TaskResult, reconcile, run
from tests.timeouts import HANG_SECONDS

NO_CLIENT = cast("ApiClient", None)  # these tasks send no requests


@dataclass
class FakeTask:
    """A task with predefined results."""

    results: Iterator[TaskResult]
    moments: list[datetime] = field(default_factory=list)

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  no requests
        self.moments.append(now)
        await asyncio.sleep(0)
        return next(self.results, TaskResult())


@dataclass
class RecordedReports:
    done: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    starts: int = 0

    def begin(self) -> None:
        self.starts += 1

    @property
    def reports(self) -> TaskReports:
        return TaskReports(
            lambda action: self.done.append(action.text),
            self.errors.append,
            lambda text: self.errors.append(f"over: {text}"),
            lambda _: None,
            self.begin,
        )


async def while_it_runs(
    fake: FakeTask, recorded: RecordedReports, until: Callable[[], bool], is_leader: Callable[[], bool]
) -> None:
    running = asyncio.create_task(run(NO_CLIENT, is_leader, [fake], recorded.reports, 0.001))
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while not until():  # noqa: ASYNC110  the task has no event to wait for
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def action_result(text: str) -> TaskResult:
    return TaskResult(Action(OTHER, "it", text))


async def test_one_round_does_all_due_actions_and_reads_the_wall_clock_each_time() -> None:
    fake, recorded = (
        FakeTask(iter([action_result("a"), action_result("b"), TaskResult(is_overtaken=True), action_result("c")])),
        RecordedReports(),
    )
    assert await reconcile(Api(NO_CLIENT, lambda: True), [fake], recorded.reports) == ()
    assert recorded.done == ["a", "b", "c"]
    assert len(fake.moments) == 5
    assert all(datetime.now(UTC) - moment < timedelta(minutes=1) for moment in fake.moments)


async def test_tasks_run_repeatedly_on_the_leader_only() -> None:
    """The wall clock is read at least every 60 s, by one writer."""
    fake, recorded, leader_flag = FakeTask(iter(())), RecordedReports(), [False]
    running = while_it_runs(fake, recorded, lambda: len(fake.moments) > 5, lambda: leader_flag[0])
    task = asyncio.create_task(running)
    await asyncio.sleep(0.05)
    assert fake.moments == []
    leader_flag[0] = True
    await task
    assert loop.PAUSE_SECONDS_MAX <= 60


async def test_error_is_reported_once_and_once_more_when_it_ends() -> None:
    bad, worse = TaskResult(errors=("bad",)), TaskResult(errors=("bad", "worse"))
    fake, recorded = (
        FakeTask(iter([bad, bad, worse, worse, TaskResult(errors=("worse",)), TaskResult()])),
        RecordedReports(),
    )
    await while_it_runs(fake, recorded, lambda: len(fake.moments) > 6, lambda: True)
    assert recorded.errors == ["bad", "worse", "over: bad", "over: worse"]


async def test_lost_leadership_clears_errors_and_regained_leadership_reports_them_again() -> None:
    recorded, leader_flag = RecordedReports(), [True]
    bad = FakeTask(TaskResult(errors=("bad",)) for _ in range(10_000))
    running = asyncio.create_task(run(NO_CLIENT, lambda: leader_flag[0], [bad], recorded.reports, 0.001))
    async with asyncio.timeout(HANG_SECONDS):
        for is_leader, expected in ((True, (1, 1)), (False, (2, 1)), (True, (2, 2))):
            leader_flag[0] = is_leader
            while (recorded.starts, len(recorded.errors)) != expected:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.001)
    running.cancel()
    assert recorded.errors == ["bad", "bad"]


async def test_conflicting_tasks_end_the_round() -> None:
    fake, recorded = FakeTask(action_result("again") for _ in range(10_000)), RecordedReports()
    await reconcile(Api(NO_CLIENT, lambda: True), [fake], recorded.reports)
    assert 10 < len(fake.moments) < 100


async def test_lost_leadership_stops_the_round() -> None:
    fake, recorded = FakeTask(action_result("again") for _ in range(10_000)), RecordedReports()
    await reconcile(Api(NO_CLIENT, lambda: len(fake.moments) < 3), [fake], recorded.reports)
    assert len(fake.moments) == 3


@dataclass
class Broken:
    """A task with a defect."""

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  no requests
        raise LookupError("the key is s3cr3t")


async def test_defective_task_is_an_error_and_the_others_run() -> None:
    recorded = RecordedReports()
    errors = await reconcile(
        Api(NO_CLIENT, lambda: True), [Broken(), FakeTask(iter([action_result("a")]))], recorded.reports
    )
    assert recorded.done == ["a"]
    [text] = errors
    assert text.startswith("Broken: internal error (LookupError at test_loop.py:")
    assert "s3cr3t" not in text


async def test_without_leadership_nothing_is_written() -> None:
    with pytest.raises(OvertakenError, match="another process leads now"):
        await Api(NO_CLIENT, lambda: False).replace("/api/v1/namespaces/podgate-system/secrets/podgate-tls", {})
