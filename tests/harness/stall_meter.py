"""Stalls of an idle process, measured each millisecond: time that the machine gave to no process.

`python -m tests.harness.stall_meter` prints its gaps, in seconds beyond the millisecond, as a JSON list on SIGTERM.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_STEP_SECONDS = 0.001
_REPORTED_SECONDS = 0.0005


class Gaps:
    """The gaps of one run; complete when the block has ended."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def largest(self) -> float:
        return max(self.seconds, default=0.0)


@asynccontextmanager
async def run_spinner() -> AsyncIterator[Gaps]:
    """Run a spinner beside the block."""
    gaps = Gaps()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE)
    try:
        yield gaps
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
        gaps.seconds = json.loads(output) if output else []


def main() -> None:
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    found: list[float] = []
    before = time.monotonic()
    while not ended:
        time.sleep(_STEP_SECONDS)
        now = time.monotonic()
        gap = now - before - _STEP_SECONDS
        if gap > _REPORTED_SECONDS:
            found.append(gap)
        before = now
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
