"""Concurrent requests for metrics or status use at most a fifth of the time."""

import asyncio

import pytest

from webhook.support.single_flight import SingleFlight


class Work:
    """Work of `long_seconds`, on a clock that only it and rests advance."""

    def __init__(self, long_seconds: float) -> None:
        self.long_seconds = long_seconds
        self.now_seconds = 100.0
        self.began_seconds: list[float] = []
        self.fault: Exception | None = None
        self.shared = SingleFlight(self.make, lambda: self.now_seconds, self.sleep)

    async def make(self) -> bytes:
        self.began_seconds.append(self.now_seconds)
        await self.sleep(self.long_seconds)
        if self.fault is not None:
            raise self.fault
        return b"%d" % len(self.began_seconds)

    async def sleep(self, seconds: float) -> None:
        self.now_seconds += seconds
        await asyncio.sleep(0)


async def test_concurrent_callers_share_one_result() -> None:
    work = Work(0.01)
    assert await asyncio.gather(*(work.shared.get() for _ in range(50))) == [b"1"] * 50


async def test_next_result_follows_a_rest_of_four_times_its_duration() -> None:
    work = Work(0.01)
    assert [await work.shared.get() for _ in range(3)] == [b"1", b"2", b"3"]
    assert work.began_seconds == pytest.approx([100, 100.05, 100.10])


async def test_later_caller_does_not_wait() -> None:
    work = Work(0.01)
    await work.shared.get()
    work.now_seconds = 200.0
    await work.shared.get()
    assert work.began_seconds == [100, 200]


async def test_rest_after_a_slow_result_is_half_a_second_at_most() -> None:
    work = Work(2.0)
    await work.shared.get()
    await work.shared.get()
    assert work.began_seconds == [100, 102.5]


async def test_failure_or_cancellation_does_not_affect_other_callers() -> None:
    work = Work(0.01)
    work.fault = OSError("away")
    with pytest.raises(OSError, match="away"):
        await work.shared.get()
    work.fault = None
    cancelled, waiting = asyncio.create_task(work.shared.get()), asyncio.create_task(work.shared.get())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await waiting == b"2"
