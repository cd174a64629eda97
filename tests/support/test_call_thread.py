"""Steps of calls in the thread: in order, and skipped if the caller has gone before they begin."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.timeouts import HANG_SECONDS
from webhook.support.call_thread import CallerGoneError, CallThread, WaitingCaller, waiting_caller


class Blocker:
    """A step that keeps the thread until it is released."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(HANG_SECONDS)
        return "ended"


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    blocker = Blocker()
    yield blocker
    blocker.may_end.set()


async def run_for(thread: CallThread, caller: WaitingCaller | None, *step: Any) -> Any:
    waiting_caller.set(caller)
    return await thread.run(*step)


async def begin(thread: CallThread, blocker: Blocker, caller: WaitingCaller | None = None) -> "asyncio.Task[Any]":
    """Begin the step that keeps the thread."""
    task = asyncio.create_task(run_for(thread, caller, blocker))
    await asyncio.to_thread(blocker.begun.wait, HANG_SECONDS)
    return task


async def test_a_step_that_waits_is_skipped_at_once_if_its_caller_goes(blocker: Blocker) -> None:
    thread, gone, there, run = CallThread("test"), WaitingCaller(), WaitingCaller(), list[str]()
    first = await begin(thread, blocker)
    skipped = asyncio.create_task(run_for(thread, gone, run.append, "skipped"))
    kept = asyncio.create_task(run_for(thread, there, run.append, "kept"))
    await asyncio.sleep(0)
    gone.leave()
    with pytest.raises(CallerGoneError):
        await skipped
    assert not first.done()
    blocker.may_end.set()
    await kept
    assert (await first, run) == ("ended", ["kept"])


async def test_a_step_that_has_begun_runs_to_its_end_and_the_next_one_is_skipped(blocker: Blocker) -> None:
    thread, caller = CallThread("test"), WaitingCaller()
    first = await begin(thread, blocker, caller)
    caller.leave()
    blocker.may_end.set()
    assert await first == "ended"
    with pytest.raises(CallerGoneError):
        await run_for(thread, caller, str)


async def test_a_skipped_step_keeps_nothing_in_memory(blocker: Blocker) -> None:
    class Body:
        """What a step was to read."""

    thread, caller = CallThread("test"), WaitingCaller()
    await begin(thread, blocker)
    skipped = asyncio.create_task(run_for(thread, caller, id, Body()))
    await asyncio.sleep(0)
    caller.leave()
    with pytest.raises(CallerGoneError):
        await skipped
    del skipped
    await asyncio.sleep(0)  # until then the loop holds the error that it has thrown
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, Body)]


@pytest.mark.parametrize("has_gone", [False, True])
async def test_a_cancelled_call_stays_cancelled(blocker: Blocker, *, has_gone: bool) -> None:
    thread, caller = CallThread("test"), WaitingCaller()
    await begin(thread, blocker)
    waiting = asyncio.create_task(run_for(thread, caller, str))
    await asyncio.sleep(0)
    waiting.cancel()
    if has_gone:
        caller.leave()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("caller", [None, WaitingCaller()])
async def test_a_step_returns_its_result_and_raises_its_error(caller: WaitingCaller | None) -> None:
    thread = CallThread("test")
    assert await run_for(thread, caller, int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        await run_for(thread, caller, int, "seven")
