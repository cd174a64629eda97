"""Concurrent requests for metrics or status use at most a fifth of the time."""

import asyncio

import pytest

from webhook.support.single_flight import SingleFlight


class Making:
    """What takes `long_seconds` by a clock that moves only with it and with rests."""

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


async def test_all_who_ask_at_once_get_one() -> None:
    making = Making(0.01)
    assert await asyncio.gather(*(making.shared.get() for _ in range(50))) == [b"1"] * 50


async def test_who_asks_again_gets_a_new_one_after_a_rest_of_four_times_its_length() -> None:
    making = Making(0.01)
    assert [await making.shared.get() for _ in range(3)] == [b"1", b"2", b"3"]
    assert making.began_seconds == pytest.approx([100, 100.05, 100.10])


async def test_who_asks_later_does_not_wait() -> None:
    making = Making(0.01)
    await making.shared.get()
    making.now_seconds = 200.0
    await making.shared.get()
    assert making.began_seconds == [100, 200]


async def test_what_is_long_in_coming_is_not_waited_for_longer_than_half_a_second_more() -> None:
    making = Making(2.0)
    await making.shared.get()
    await making.shared.get()
    assert making.began_seconds == [100, 102.5]


async def test_a_failure_and_one_who_hangs_up_spoil_it_for_no_other() -> None:
    making = Making(0.01)
    making.fault = OSError("away")
    with pytest.raises(OSError, match="away"):
        await making.shared.get()
    making.fault = None
    leaving, staying = asyncio.create_task(making.shared.get()), asyncio.create_task(making.shared.get())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == b"2"
