"""Helpers of the tests of watches: the reports that they collect, and the loops that they run."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.ports import WatchReports


@dataclass
class Reported:
    """The reports of a loop."""

    contacts: int = 0
    troubles: list[str] = field(default_factory=list)
    overs: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    """The objects that cannot be read now, with the reasons."""

    @property
    def reports(self) -> WatchReports:
        return WatchReports(self._contact, self.troubles.append, self.overs.append, self._note_unread)

    def _note_unread(self, reasons: Mapping[str, str]) -> None:
        self.unread = dict(reasons)

    def _contact(self) -> None:
        self.contacts += 1


class Loops:
    """Loops that end only when they are cancelled."""

    def __init__(self) -> None:
        self._running: list[asyncio.Task[None]] = []

    def start(self, loop: Coroutine[Any, Any, None]) -> None:
        self._running.append(asyncio.create_task(loop))

    async def stop(self) -> None:
        for task in self._running:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()
