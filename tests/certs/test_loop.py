"""The loop of the tasks: the leader repeats them, and reports each failure once."""

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
from certs.cluster.loop import TaskReports, reconcile, run
from certs.cluster.tasks import OTHER, Action, TaskResult
from tests.timeouts import HANG_SECONDS

NO_CLIENT = cast("ApiClient", None)  # these tasks ask nothing of it


@dataclass
class FakeTask:
    """Says what it is told to say."""

    answers: Iterator[TaskResult]
    moments: list[datetime] = field(default_factory=list)

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  it asks nothing
        self.moments.append(now)
        await asyncio.sleep(0)
        return next(self.answers, TaskResult())


@dataclass
class Heard:
    done: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    anew: int = 0

    def begin(self) -> None:
        self.anew += 1

    @property
    def reports(self) -> TaskReports:
        return TaskReports(
            lambda one: self.done.append(one.text),
            self.troubles.append,
            lambda text: self.troubles.append(f"over: {text}"),
            lambda _: None,
            self.begin,
        )


async def while_it_runs(fake: FakeTask, reported: Heard, until: Callable[[], bool], leads: Callable[[], bool]) -> None:
    running = asyncio.create_task(run(NO_CLIENT, leads, [fake], reported.reports, 0.001))
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while not until():  # noqa: ASYNC110  a task is asked, it tells nobody
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def did(text: str) -> TaskResult:
    return TaskResult(Action(OTHER, "it", text))


async def test_one_round_does_all_due_actions_and_reads_the_wall_clock_each_time() -> None:
    fake, reported = FakeTask(iter([did("a"), did("b"), TaskResult(is_overtaken=True), did("c")])), Heard()
    assert await reconcile(Api(NO_CLIENT, lambda: True), [fake], reported.reports) == ()
    assert reported.done == ["a", "b", "c"]
    assert len(fake.moments) == 5
    assert all(datetime.now(UTC) - moment < timedelta(minutes=1) for moment in fake.moments)


async def test_tasks_run_repeatedly_on_the_leader_only() -> None:
    """Checklist, 3 and 4: compare the wall clock at least every 60 s; one writer."""
    fake, reported, leading = FakeTask(iter(())), Heard(), [False]
    running = while_it_runs(fake, reported, lambda: len(fake.moments) > 5, lambda: leading[0])
    task = asyncio.create_task(running)
    await asyncio.sleep(0.05)
    assert fake.moments == []
    leading[0] = True
    await task
    assert loop.PAUSE_SECONDS_MAX <= 60


async def test_error_is_reported_once_and_once_more_when_it_ends() -> None:
    bad, worse = TaskResult(errors=("bad",)), TaskResult(errors=("bad", "worse"))
    fake, reported = FakeTask(iter([bad, bad, worse, worse, TaskResult(errors=("worse",)), TaskResult()])), Heard()
    await while_it_runs(fake, reported, lambda: len(fake.moments) > 6, lambda: True)
    assert reported.troubles == ["bad", "worse", "over: bad", "over: worse"]


async def test_lost_leadership_clears_errors_and_regained_leadership_reports_them_again() -> None:
    reported, leading = Heard(), [True]
    bad = FakeTask(TaskResult(errors=("bad",)) for _ in range(10_000))
    running = asyncio.create_task(run(NO_CLIENT, lambda: leading[0], [bad], reported.reports, 0.001))
    async with asyncio.timeout(HANG_SECONDS):
        for leads, expected in ((True, (1, 1)), (False, (2, 1)), (True, (2, 2))):
            leading[0] = leads
            while (reported.anew, len(reported.troubles)) != expected:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.001)
    running.cancel()
    assert reported.troubles == ["bad", "bad"]


async def test_conflicting_tasks_end_the_round() -> None:
    fake, reported = FakeTask(did("again") for _ in range(10_000)), Heard()
    await reconcile(Api(NO_CLIENT, lambda: True), [fake], reported.reports)
    assert 10 < len(fake.moments) < 100


async def test_lost_leadership_stops_the_round() -> None:
    fake, reported = FakeTask(did("again") for _ in range(10_000)), Heard()
    await reconcile(Api(NO_CLIENT, lambda: len(fake.moments) < 3), [fake], reported.reports)
    assert len(fake.moments) == 3


@dataclass
class Broken:
    """Has a defect."""

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:  # noqa: ARG002  it asks nothing
        raise LookupError("the key is s3cr3t")


async def test_defective_task_is_an_error_and_the_others_run() -> None:
    reported = Heard()
    troubles = await reconcile(Api(NO_CLIENT, lambda: True), [Broken(), FakeTask(iter([did("a")]))], reported.reports)
    assert reported.done == ["a"]
    [text] = troubles
    assert text.startswith("Broken: internal error (LookupError at test_loop.py:")
    assert "s3cr3t" not in text


async def test_without_leadership_nothing_is_written() -> None:
    with pytest.raises(OvertakenError, match="another process leads now"):
        await Api(NO_CLIENT, lambda: False).replace("/api/v1/namespaces/podgate-system/secrets/podgate-tls", {})
