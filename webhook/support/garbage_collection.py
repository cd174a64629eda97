"""Garbage collection, deferred while many objects are created.

A full collection scans every object without a break, and no review is answered meanwhile: docs/design/event-loop.md.
Long-lived objects are frozen afterwards and not scanned again; those without cycles are still freed by reference count.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Disable collection within the block, for work that leaves nothing behind."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def put_off() -> Iterator[None]:
    """Disable collection within the block, then exclude all existing objects from later collections."""
    with paused():
        try:
            yield
        finally:
            gc.freeze()
