"""When a service is told again that the store gave no answer for: each pause is twice the one before it."""

import asyncio
import random

from webhook.controller.reports import ControllerTiming


class Pauses:
    """By service."""

    def __init__(self, pace: ControllerTiming) -> None:
        self._pace = pace
        self._pauses: dict[str, tuple[float, float]] = {}
        """When it is told again, and the pause before it."""

    def is_over(self, service: str) -> bool:
        return self._pauses.get(service, (0.0, 0.0))[0] <= asyncio.get_running_loop().time()

    def begin(self, service: str) -> None:
        """Hear that the store gave no answer."""
        _, before = self._pauses.get(service, (0.0, 0.0))
        pause = min(max(before * 2, self._pace.first_retry_seconds), self._pace.longest_retry_seconds)
        until = asyncio.get_running_loop().time() + pause * random.uniform(0.5, 1)  # noqa: S311  it guards nothing
        self._pauses[service] = until, pause

    def end(self, service: str) -> None:
        """Hear that it did."""
        self._pauses.pop(service, None)

    async def rest(self, noted: asyncio.Event) -> None:
        """Wait for something new to tell, or for a round: time alone may have ended a pause."""
        try:
            async with asyncio.timeout(self._pace.round_seconds):
                await noted.wait()
        except TimeoutError:
            pass
