"""Memory of a process: garbage collection deferred while many objects are created, and a periodic malloc_trim.

A full collection scans every object without a break, and no review is answered meanwhile: docs/design/event-loop.md.
Long-lived objects are therefore frozen and not scanned again; those without cycles are still freed by their counts.
"""

import asyncio
import ctypes
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

_EVERY_SECONDS = 10.0


def build_trim_loops() -> tuple[Callable[[], Awaitable[None]], ...]:
    """Return the loop that gives the memory of floods back to the system, or () if the C library has no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only: other C libraries return memory by themselves
    if trim is None:
        return ()

    async def give_back() -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await asyncio.to_thread(trim, 0)  # after a flood it takes long

    return (give_back,)


@contextmanager
def pause_collection() -> Iterator[None]:
    """Disable collection within the block, for work whose objects do not outlive it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def defer_collection() -> Iterator[None]:
    """Disable collection within the block, then exclude all existing objects from later collections."""
    with pause_collection():
        try:
            yield
        finally:
            gc.freeze()
