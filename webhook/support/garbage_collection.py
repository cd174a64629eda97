"""Garbage collection, put off while much is built that stays.

A full collection looks at every object there is, in one go: a third of a second with a policy of a thousand services.
What stays is set aside afterwards, and never looked at again; without cycles it is freed all the same when it goes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Collect nothing within the block, and leave what is there after it out of all later collections."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
