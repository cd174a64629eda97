"""The log lines that say when a process stops being ready, and why, and when it is ready again."""

import asyncio
from collections.abc import Callable, Sequence

from webhook.adapters.logs import Logs

_LOOK_SECONDS = 5.0


class ReadinessLog:
    """Looks again and again: what expires, no event tells. `leaving` is a reason that has a log line of its own."""

    def __init__(self, unready: Callable[[], Sequence[str]], logs: Logs, leaving: str = "") -> None:
        self._unready = unready
        self._logs = logs
        self._leaving = leaving
        self._told: list[str] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        reasons = list(self._unready())
        if reasons == self._told or self._leaving in reasons:
            return
        self._told = reasons
        if reasons:
            self._logs.said("error", "not ready", reasons=reasons)
        else:
            self._logs.said("info", "ready again")
