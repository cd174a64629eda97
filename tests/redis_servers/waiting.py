"""Waiting for states that servers reach together."""

import time
from collections.abc import Callable

from redis.exceptions import RedisError

from tests.cluster.processes import ComponentError
from tests.timeouts import HANG_SECONDS


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds` returns true; an error of Redis counts as false."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            if holds():
                return
            error_text = ""
        except RedisError as error:
            error_text = f": {error}"
        if time.monotonic() > deadline:
            raise ComponentError(f"not in {HANG_SECONDS} s: {what}{error_text}")
        time.sleep(0.02)
