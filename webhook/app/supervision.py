"""How long-lived processes are kept going, and asked to end."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from webhook.adapters.logs import Logs

_AGAIN_SECONDS = 1.0


async def run_forever(loop: Callable[[], Awaitable[None]], logs: Logs) -> None:
    """Begin again after a defect of ours: a watch that has ended unseen would leave old things in force."""
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001  whatever the defect is
            logs.said("error", "a background task failed and is restarted", reason=repr(error))
            await asyncio.sleep(_AGAIN_SECONDS)


def stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return what is set by SIGTERM or SIGINT, and what a second one sets."""
    asked, asked_again = asyncio.Event(), asyncio.Event()

    def ask() -> None:
        (asked_again if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    return asked, asked_again
