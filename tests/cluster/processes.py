"""Background processes, each with a log, in one process group, and a reaper that outlives the test process."""

import atexit
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.bench.cpu import cpu_seconds
from tests.harness.fork_server import ForkedProcess, fork_server
from tests.timeouts import HANG_SECONDS

_REAPER = Path(__file__).with_name("reaper.py")
_RESERVED_MAX = 100
_reserved: deque[socket.socket] = deque()
"""What reserves the latest ports of this process; the end of a socket ends its reservation."""


@atexit.register
def _end_reservations() -> None:
    while _reserved:
        _reserved.pop().close()


class ComponentError(AssertionError):
    """A component failed; the message contains its log."""


def find_free_ports(count: int, among: Sequence[int] = range(10_000, 12_000)) -> list[int]:
    """Return free TCP ports of loopback, and reserve them: no other test process gets one before its use or a restart.

    They are below the ephemeral ports, so that no outgoing connection takes the port of a stopped server, and a client
    of that port does not connect to itself.
    """
    with contextlib.ExitStack() as probes:
        ports: list[int] = []
        while len(ports) < count:
            port, probe = secrets.choice(among), probes.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _reserved.append(reserve_port(port))
                if len(_reserved) > _RESERVED_MAX:
                    _reserved.popleft().close()
                ports.append(port)
        return ports


def reserve_port(port: int) -> socket.socket:
    """Return what keeps a port from other test processes; OSError if one of them has reserved it."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0podgate-test-port-{port}")  # an abstract name, which ends with its process
    except OSError:
        reservation.close()
        raise
    return reservation


def sum_cpu_seconds() -> float:
    """Return the CPU time of all background processes of this process that are running."""
    processes = [process for processes in Processes.open for process in list(processes._running.values())]
    total = 0.0
    for process in (process for process in processes if process.returncode is None):
        with contextlib.suppress(OSError):  # it has just ended
            total += cpu_seconds(process.pid)
    return total


class Processes:
    """Named processes with the working folder `folder`, which `close` deletes.

    `environment` is added to that of programs, but not of commands of this Python.
    """

    open: ClassVar[weakref.WeakSet["Processes"]] = weakref.WeakSet()

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._environment = environment or {}
        self._running: dict[str, subprocess.Popen[bytes] | ForkedProcess] = {}
        self.open.add(self)
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", _REAPER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C must not end it
        )
        assert self._reaper.stdout is not None
        with self._reaper.stdout as output:
            self._group = int(output.readline())

    def start(self, name: str, command: Sequence[str | Path]) -> None:
        """Start a program; a command of this Python is forked from an interpreter that has imported Podgate already."""
        assert not self.is_alive(name), f"{name} runs already"
        program, *arguments = command
        with self._log(name).open("ab") as log:
            if program == sys.executable:
                self._running[name] = fork_server().start(
                    arguments, log=log.fileno(), folder=self.folder, group=self._group
                )
                return
            self._running[name] = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._group,
            )

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Stop a process with SIGTERM, or with SIGKILL if `kill`; without effect if it has exited."""
        process = self._running.pop(name)
        process.kill() if kill else process.terminate()
        try:
            process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def is_alive(self, name: str) -> bool:
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: str) -> int:
        return self._running[name].pid

    @property
    def names(self) -> list[str]:
        """Names of processes that were started and not stopped, even if they have exited."""
        return list(self._running)

    def require(self, *names: str) -> None:
        """Raise ComponentError if one of these processes has exited."""
        for name in names:
            if not self.is_alive(name):
                code = self._running[name].returncode if name in self._running else "nothing: it was not started"
                raise ComponentError(f"{name} ended with {code}:\n{self.log(name)}")

    def log(self, name: str, lines: int = 30) -> str:
        """Return the last lines of a process's log."""
        path = self._log(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """Kill all processes; the reaper then deletes the folder, as it does if this process is killed."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
