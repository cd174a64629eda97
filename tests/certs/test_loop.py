"""The loop around the duties: who leads looks, again and again, and tells each trouble once."""

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
from certs.cluster.loop import Reports, look, run
from certs.cluster.tasks import OTHER, Done, Looked

NO_CLIENT = cast("ApiClient", None)  # these duties ask nothing of it


@dataclass
class Duty:
    """Says what it is told to say."""

    answers: Iterator[Looked]
    moments: list[datetime] = field(default_factory=list)

    async def look(self, api: Api, now: datetime) -> Looked:  # noqa: ARG002  it asks nothing
        self.moments.append(now)
        await asyncio.sleep(0)
        return next(self.answers, Looked())


@dataclass
class Heard:
    done: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    anew: int = 0

    def begin(self) -> None:
        self.anew += 1

    @property
    def reports(self) -> Reports:
        return Reports(
            lambda one: self.done.append(one.text),
            self.troubles.append,
            lambda text: self.troubles.append(f"over: {text}"),
            lambda _: None,
            self.begin,
        )


async def while_it_runs(duty: Duty, heard: Heard, until: Callable[[], bool], leads: Callable[[], bool]) -> None:
    running = asyncio.create_task(run(NO_CLIENT, leads, [duty], heard.reports, 0.001))
    try:
        async with asyncio.timeout(20):
            while not until():  # noqa: ASYNC110  a duty is asked, it tells nobody
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def did(text: str) -> Looked:
    return Looked(Done(OTHER, "it", text))


async def test_all_that_is_due_is_done_at_one_look_and_the_wall_clock_is_asked_each_time() -> None:
    duty, heard = Duty(iter([did("a"), did("b"), Looked(is_overtaken=True), did("c")])), Heard()
    assert await look(Api(NO_CLIENT, lambda: True), [duty], heard.reports) == ()
    assert heard.done == ["a", "b", "c"]
    assert len(duty.moments) == 5
    assert all(datetime.now(UTC) - moment < timedelta(minutes=1) for moment in duty.moments)


async def test_whoever_does_not_lead_looks_at_nothing_and_who_leads_looks_again_and_again() -> None:
    """Checklist, 3 and 4: compare the wall clock at least every 60 s; one writer."""
    duty, heard, leading = Duty(iter(())), Heard(), [False]
    running = while_it_runs(duty, heard, lambda: len(duty.moments) > 5, lambda: leading[0])
    task = asyncio.create_task(running)
    await asyncio.sleep(0.05)
    assert duty.moments == []
    leading[0] = True
    await task
    assert loop.PAUSE_SECONDS_MAX <= 60


async def test_a_trouble_is_told_once_and_once_more_when_it_is_over() -> None:
    bad, worse = Looked(troubles=("bad",)), Looked(troubles=("bad", "worse"))
    duty, heard = Duty(iter([bad, bad, worse, worse, Looked(troubles=("worse",)), Looked()])), Heard()
    await while_it_runs(duty, heard, lambda: len(duty.moments) > 6, lambda: True)
    assert heard.troubles == ["bad", "worse", "over: bad", "over: worse"]


async def test_who_no_longer_leads_has_nothing_to_tell_and_tells_all_again_when_it_leads() -> None:
    heard, leading = Heard(), [True]
    bad = Duty(Looked(troubles=("bad",)) for _ in range(10_000))
    running = asyncio.create_task(run(NO_CLIENT, lambda: leading[0], [bad], heard.reports, 0.001))
    async with asyncio.timeout(20):
        for leads, told in ((True, (1, 1)), (False, (2, 1)), (True, (2, 2))):
            leading[0] = leads
            while (heard.anew, len(heard.troubles)) != told:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.001)
    running.cancel()
    assert heard.troubles == ["bad", "bad"]


async def test_two_that_undo_each_others_work_do_not_keep_it_busy_for_ever() -> None:
    duty, heard = Duty(did("again") for _ in range(10_000)), Heard()
    await look(Api(NO_CLIENT, lambda: True), [duty], heard.reports)
    assert 10 < len(duty.moments) < 100


async def test_whoever_no_longer_leads_stops_in_the_middle() -> None:
    duty, heard = Duty(did("again") for _ in range(10_000)), Heard()
    await look(Api(NO_CLIENT, lambda: len(duty.moments) < 3), [duty], heard.reports)
    assert len(duty.moments) == 3


@dataclass
class Broken:
    """Has a defect."""

    async def look(self, api: Api, now: datetime) -> Looked:  # noqa: ARG002  it asks nothing
        raise LookupError("the key is s3cr3t")


async def test_a_duty_with_a_defect_is_a_trouble_and_the_others_are_done_all_the_same() -> None:
    heard = Heard()
    troubles = await look(Api(NO_CLIENT, lambda: True), [Broken(), Duty(iter([did("a")]))], heard.reports)
    assert heard.done == ["a"]
    [text] = troubles
    assert text.startswith("Broken: a defect of ours (LookupError at test_loop.py:")
    assert "s3cr3t" not in text


async def test_nothing_is_written_by_whoever_does_not_lead() -> None:
    with pytest.raises(OvertakenError, match="another leads now"):
        await Api(NO_CLIENT, lambda: False).replace("/api/v1/namespaces/podgate-system/secrets/podgate-tls", {})
