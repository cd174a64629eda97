"""Waits for states on which servers agree among themselves."""

import time
from collections.abc import Callable

from redis.exceptions import RedisError

from tests.cluster.processes import ComponentError
from tests.timeouts import HANG_SECONDS


def until(holds: Callable[[], bool], what: str) -> None:
    """Return when `holds`; a server that does not answer yet does not hold."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            if holds():
                return
            trouble = ""
        except RedisError as error:
            trouble = f": {error}"
        if time.monotonic() > deadline:
            raise ComponentError(f"not in {HANG_SECONDS} s: {what}{trouble}")
        time.sleep(0.02)
