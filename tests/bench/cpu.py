"""CPU time of processes, and the cores of the server and of the generator."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CPU_OF_PROCESS = 2
"""CPUCLOCK_SCHED: user and system time of all threads of a process, to the nanosecond."""

CORES = sorted(os.sched_getaffinity(0))
GENERATOR_CORE, SERVER_CORE = CORES[0], CORES[-1]
"""Redis, the trace receiver and the benchmark itself use the first. On a machine with one core both are the same."""
OTHER_SERVER_CORE = CORES[-2] if len(CORES) > 2 else SERVER_CORE
"""Of a second server process."""


def cpu_seconds(pid: int) -> float:
    """Return user and system time of another process: Linux' clock_getcpuclockid(3), which Python does not have."""
    return time.clock_gettime((~pid << 3) | _CPU_OF_PROCESS)


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(member for child in children.split() for member in family(int(child)))]


@contextmanager
def pin_to(*cores: int) -> Iterator[None]:
    """Run this thread on these cores; processes started within the block inherit them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
