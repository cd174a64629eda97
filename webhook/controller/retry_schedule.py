"""Retry schedule: for each service, the time before which a store operation is not retried."""

import asyncio

from webhook.controller.reports import ControllerTiming
from webhook.support.backoff import Backoff


class RetrySchedule:
    """One `Backoff` for each service whose store operation has failed."""

    def __init__(self, timing: ControllerTiming) -> None:
        self._timing = timing
        self._backoffs: dict[str, Backoff] = {}
        self._due_seconds: dict[str, float] = {}
        """By the event loop's clock."""

    def is_due(self, service: str) -> bool:
        return self._due_seconds.get(service, 0.0) <= asyncio.get_running_loop().time()

    def postpone(self, service: str) -> None:
        """Delay the next attempt: the store did not answer."""
        timing = self._timing
        backoff = self._backoffs.get(service)
        if backoff is None:
            backoff = self._backoffs[service] = Backoff(timing.first_retry_seconds, timing.retry_seconds_max)
        self._due_seconds[service] = asyncio.get_running_loop().time() + backoff.next_seconds()

    def reset(self, service: str) -> None:
        """Remove all delay: the store answered."""
        self._backoffs.pop(service, None)
        self._due_seconds.pop(service, None)

    async def wait(self, added: asyncio.Event) -> None:
        """Wait until work is added, for one round at most: a delay may have passed by then."""
        try:
            async with asyncio.timeout(self._timing.round_seconds):
                await added.wait()
        except TimeoutError:
            pass
