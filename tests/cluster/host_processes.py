"""Processes and listening ports of this machine, to test that none is left over."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.timeouts import HANG_SECONDS


def runs(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):  # or there is no /proc
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.02)
