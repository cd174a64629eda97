"""A persistent cluster: started in the background, identified by its folder, stopped on request."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from tests.cluster.admission_configuration import Caller, admission_configuration
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kwok import NODES


def up(folder: Path, *arguments: str) -> bool:
    """Start a background process with a cluster in `folder`; return False if one is running already."""
    if _holder(folder) is not None:
        return False
    shutil.rmtree(folder, ignore_errors=True)  # of a cluster that ended with the machine
    folder.mkdir(parents=True)
    with (folder / "holder.log").open("w+", errors="replace") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "hold", "--folder", folder, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _await_ready(folder, holder, log)
        except KeyboardInterrupt:
            holder.terminate()
            holder.wait()
            raise
    return True


def _await_ready(folder: Path, holder: subprocess.Popen[bytes], log: TextIO) -> None:
    while not (folder / "ready").exists():
        if holder.poll() is not None:
            log.seek(0)  # the file is deleted by now, but still open here
            raise click.ClickException(f"the control plane ended with {holder.returncode}\n{log.read()}")
        time.sleep(0.05)


def stop(folder: Path) -> bool:
    """Stop the cluster in `folder` and wait until it is cleaned up; return whether there was one."""
    pid = _holder(folder)
    if pid is not None:
        with (folder / "lock").open() as lock:
            os.kill(pid, signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)  # the process holds the lock until it has cleaned up
    shutil.rmtree(folder, ignore_errors=True)
    return pid is not None


def hold(folder: Path, callers: Mapping[int, Caller]) -> None:
    """Run a cluster until SIGTERM. `callers` are by the port of the webhook."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: sys.exit(0))
    admission = admission_configuration(folder, callers)
    with _lock_held(folder), ControlPlane(folder=folder, admission=admission) as plane:
        plane.add_nodes(*NODES)
        (folder / "ready").touch()
        while True:
            signal.pause()


@contextmanager
def _lock_held(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, which contains the process id."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _holder(folder: Path) -> int | None:
    """Return the id of the process that holds the lock, if any; an unlocked file is stale."""
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return int((folder / "lock").read_text())
    return None
