"""What an extender that begins waits for: objects that a rule or a Pod needs, until a list of them, or its failure."""

import asyncio

import pytest

from webhook.app.scheduling.needed_watch import NeededWatch
from webhook.core.reporting.status import WatchStatus


class Need:
    def __init__(self) -> None:
        self.exists = False
        self.status: WatchStatus | None = WatchStatus()
        self.watched = asyncio.Event()
        self.watch = NeededWatch("claims", self._watch, lambda: self.exists, lambda: self.status)

    async def _watch(self) -> None:
        self.watched.set()


async def test_what_nothing_needs_is_neither_watched_nor_awaited() -> None:
    need = Need()
    task = asyncio.create_task(need.watch.run())
    await asyncio.sleep(0.6)
    assert not need.watched.is_set()
    assert need.watch.list_unready() == []
    need.exists = True
    await asyncio.wait_for(need.watched.wait(), 60)
    await task


@pytest.mark.parametrize("status", [WatchStatus(1), WatchStatus(error="cannot list claims: 403"), WatchStatus(1, "x")])
async def test_what_is_needed_is_awaited_until_it_was_listed_or_could_not_be(status: WatchStatus) -> None:
    need = Need()
    need.exists = True
    assert need.watch.list_unready() == ["claims are not listed yet"]
    need.status = None
    assert need.watch.list_unready() == ["claims are not listed yet"]
    need.status = status
    assert need.watch.list_unready() == []
