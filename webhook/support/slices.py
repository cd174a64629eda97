"""Slices of long work on the event loop: between two of them other tasks run."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")


async def slices(items: Iterable[_T], size: int) -> AsyncIterator[list[_T]]:
    """Yield lists of at most `size` items. The items must not change meanwhile: pass a copy of what others change."""
    remaining = iter(items)
    while taken := list(islice(remaining, size)):
        yield taken
        await asyncio.sleep(0)
