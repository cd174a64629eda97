"""NeededWatch: a watch that runs once a rule or a Pod needs it, and that a process that begins waits for."""

import asyncio
from collections.abc import Awaitable, Callable

from webhook.core.reporting.status import WatchStatus

_PERIOD_SECONDS = 0.25


def is_tried(status: WatchStatus | None) -> bool:
    """Return whether the watch with this health has listed once, or could not."""
    return status is not None and (status.contact_us is not None or bool(status.error))


class NeededWatch:
    """Many clusters have no objects of its resource: there it does not run."""

    def __init__(
        self,
        resource: str,
        watch: Callable[[], Awaitable[None]],
        is_needed: Callable[[], bool],
        read_status: Callable[[], WatchStatus | None],
    ) -> None:
        """Create it. `read_status` returns the health of the watch."""
        self._resource = resource
        self._watch = watch
        self._is_needed = is_needed
        self._read_status = read_status

    async def run(self) -> None:
        """Watch from the moment on at which it is needed, until cancelled."""
        while not self._is_needed():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(_PERIOD_SECONDS)
        await self._watch()

    def list_unready(self) -> list[str]:
        """Return why what is needed is not known yet. A list that failed is no reason: the log has it."""
        return (
            [f"{self._resource} are not listed yet"] if self._is_needed() and not is_tried(self._read_status()) else []
        )
