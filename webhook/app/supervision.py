"""Supervision of a process: background tasks, readiness changes in the log, and signals."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence

from webhook.adapters.logs import Logs
from webhook.support.condition import Condition

Loop = Callable[[], Awaitable[None]]
"""A background task of a process."""
_AGAIN_SECONDS = 1.0
_CHECK_SECONDS = 5.0


async def run_forever(loop: Loop, logs: Logs) -> None:
    """Restart a loop after an unexpected error: a watch that ended silently would leave old data in use."""
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001  any defect
            logs.write_event("error", "a background task failed and is restarted", reason=repr(error))
            await asyncio.sleep(_AGAIN_SECONDS)


def watch_stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return an event set by SIGTERM or SIGINT, and one set by a second signal."""
    asked, asked_again = asyncio.Event(), asyncio.Event()

    def ask() -> None:
        (asked_again if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    return asked, asked_again


class ReadinessLog:
    """Logs each change of readiness. It polls, since an expiry has no event. `leaving` is a reason logged elsewhere."""

    def __init__(self, unready: Callable[[], Sequence[str]], logs: Logs, leaving: str = "") -> None:
        self._unready = unready
        self._logs = logs
        self._leaving = leaving
        self._not_ready = Condition[tuple[str, ...]](
            self._log_reasons,
            lambda _: logs.write_event("info", "ready again"),
            on_changed=lambda _, reasons: self._log_reasons(reasons),
        )

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(_CHECK_SECONDS)

    def check(self) -> None:
        reasons = tuple(self._unready())
        if self._leaving in reasons:
            return
        if reasons:
            self._not_ready.enter(reasons)
        else:
            self._not_ready.leave()

    def _log_reasons(self, reasons: tuple[str, ...]) -> None:
        self._logs.write_event("error", "not ready", reasons=list(reasons))
