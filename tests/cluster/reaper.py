"""Cleanup of a test process: waits until that process has ended, then ends what it left running.

A program of its own, `python reaper.py FOLDER`, its standard input a pipe whose other end the test process holds. It
prints the id of a process group; once the pipe closes, whatever has joined that group is killed, and FOLDER deleted.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

_PATIENCE_SECONDS = 10.0


def main(folder: Path) -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # whatever ends the test process is none of our business: the pipe is
    group = _anchor()
    sys.stdout.write(f"{group}\n")
    sys.stdout.close()
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(group, signal.SIGKILL)
    os.waitpid(group, 0)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with contextlib.suppress(ProcessLookupError):  # nobody is left in it
        while time.monotonic() < deadline:
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # a dying process may still have written into it


def _anchor() -> int:
    """Start a process that does nothing but keep a group alive, which its members come to and leave."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        while True:
            signal.pause()
    with contextlib.suppress(PermissionError):  # the child may have done it first; not so its exec, there is none
        os.setpgid(child, child)
    return child


if __name__ == "__main__":
    main(Path(sys.argv[1]))
