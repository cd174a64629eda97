"""Cleanup after a test process has ended: its background processes are killed.

`python reaper.py FOLDER` prints the id of a process group. Its standard input is a pipe from the test process. When the
pipe closes, all processes of the group are killed, and FOLDER is deleted.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_TIMEOUT_SECONDS = 10.0


def main(folder: Path) -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # only the pipe ends this process
    group = _anchor()
    sys.stdout.write(f"{group}\n")
    sys.stdout.close()
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(group, signal.SIGKILL)
    os.waitpid(group, 0)
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with contextlib.suppress(ProcessLookupError):  # the group is empty
        while time.monotonic() < deadline:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # a process that is being killed may still write into it


def _anchor() -> int:
    """Start an idle process that keeps the process group alive."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        while True:
            signal.pause()
    with contextlib.suppress(PermissionError):  # the child has already done it
        os.setpgid(child, child)
    return child


if __name__ == "__main__":
    main(Path(sys.argv[1]))
