"""Periodic malloc_trim: returns unused heap memory, for example after hundreds of connections, to the system."""

import asyncio
import ctypes
from collections.abc import Awaitable, Callable

_EVERY_SECONDS = 10.0


def giving_back() -> tuple[Callable[[], Awaitable[None]], ...]:
    """Return the trimming loop, or () if the C library has no malloc_trim. Without it, floods of calls leave memory."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it; other C libraries return memory on their own
    if trim is None:
        return ()

    async def give_back() -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await asyncio.to_thread(trim, 0)  # after a flood it takes long

    return (give_back,)
