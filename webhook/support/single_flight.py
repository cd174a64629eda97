"""Single flight: concurrent callers share one computation, with a pause between runs."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_REST_FACTOR = 4
"""Pause in multiples of a run's duration, so that short runs take at most a fifth of the time."""
_REST_MAX_SECONDS = 0.5


class SingleFlight:
    """A computation that all callers during a run, or the pause before it, share; its result is never reused."""

    def __init__(
        self,
        make: Callable[[], Awaitable[bytes]],
        now_seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._make = make
        self._now_seconds = now_seconds
        self._sleep = sleep
        self._rested_at_seconds = now_seconds()
        self._making: asyncio.Task[bytes] | None = None

    async def get(self) -> bytes:
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._run())
        return await asyncio.shield(self._making)

    async def _run(self) -> bytes:
        await self._sleep(max(0.0, self._rested_at_seconds - self._now_seconds()))
        began_seconds = self._now_seconds()
        try:
            return await self._make()
        finally:
            ended_seconds = self._now_seconds()
            rest_seconds = min(_REST_FACTOR * (ended_seconds - began_seconds), _REST_MAX_SECONDS)
            self._rested_at_seconds = ended_seconds + rest_seconds
