"""Parts of the tests of `pod_lifecycle` that other tests use."""

import asyncio
from collections.abc import Callable

from tests.timeouts import HANG_SECONDS


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  the loops set no event
            await asyncio.sleep(0.001)
