"""Slices: all items in order, and other tasks run between two slices."""

import asyncio

from webhook.support.slices import slices


async def test_other_tasks_run_between_two_slices() -> None:
    order: list[object] = []

    async def other() -> None:
        while True:
            order.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for taken in slices(range(5), 2):
        order += [taken]
    task.cancel()
    assert order == [[0, 1], "other", [2, 3], "other", [4], "other"]
    assert [taken async for taken in slices((), 2)] == []
