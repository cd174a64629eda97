"""Fork server: an interpreter that has imported Podgate, and forks a process for each of its command lines.

A process of its own would import the same modules again for each server. A forked process differs from one that
is started as `python -m webhook` in its imports, its policy checks, which are forked from it, its files, which it polls
ten times as often, and its end, at which it frees nothing. Tests of memory, of the policy check and of the command line
start theirs alone.
"""

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

_REQUEST_BYTES_MAX = 1 << 17  # most of it is the environment
_PRELOADED = ("webhook", "certs")
_FILE_POLL_SECONDS = 0.5


class ForkedProcess:
    """A process of the fork server, with the interface of `subprocess.Popen`."""

    cpu_seconds: ClassVar[float] = 0.0
    """Of all processes that have ended, and their children."""

    def __init__(self, pid: int, result: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._result = result

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._result], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            with self._result:
                code, cpu_seconds = self._result.recv(64).split()
            ForkedProcess.cpu_seconds += float(cpu_seconds)
            self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The tests' end of the fork server; if this process is killed, all forked processes end."""

    def __init__(self) -> None:
        self._requests, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=other_end, stdout=subprocess.DEVNULL, process_group=0
            )

    def start(
        self, arguments: Sequence[str | Path], *, log: int, folder: Path, group: int | None = None
    ) -> ForkedProcess:
        """Start what `python ARGUMENTS` would in a folder, with a file descriptor as its output."""
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder),
            "group": group,
            "environment": dict(os.environ),
        }
        result, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [log, other_end.fileno()])
        return ForkedProcess(int(result.recv(64)), result)

    def close(self) -> None:
        """End the fork server, and its processes."""
        self._requests.close()
        self._process.wait()


@cache
def fork_server() -> ForkServer:
    """Return this process's fork server; it is closed at the end of the session."""
    return ForkServer()


def close_fork_server() -> None:
    if fork_server.cache_info().currsize:
        fork_server().close()


# --- the process ---


class Forks:
    """Forks for each request, and reports how each process ended."""

    def __init__(self) -> None:
        self._requests = socket.socket(fileno=os.dup(0))
        self._results: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
        self._waiting = select.poll()
        self._waiting.register(self._requests, select.POLLIN)

    def serve(self) -> dict[str, Any]:
        """Return a request in the process that is to run it; never return in this one."""
        while True:
            for ready, _ in self._waiting.poll():
                if ready in self._results:
                    self._report(ready)
                elif request := self._fork():
                    return request

    def _fork(self) -> dict[str, Any] | None:
        message, fds, _, _ = socket.recv_fds(self._requests, _REQUEST_BYTES_MAX, 2)
        if not message:
            os.killpg(0, signal.SIGKILL)
        log, result = fds[0], socket.socket(fileno=fds[1])
        if pid := os.fork():
            os.close(log)
            result.send(str(pid).encode())
            end = os.pidfd_open(pid)
            self._results[end] = pid, result
            self._waiting.register(end, select.POLLIN)
            return None
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        result.close()
        self._close()
        return dict(json.loads(message))

    def _report(self, end: int) -> None:
        pid, result = self._results.pop(end)
        self._waiting.unregister(end)
        os.close(end)
        _, status, used = os.wait4(pid, 0)
        with result, suppress(BrokenPipeError):
            result.send(f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}".encode())

    def _close(self) -> None:
        self._requests.close()
        for end, (_, result) in self._results.items():
            os.close(end)
            result.close()


def run(request: dict[str, Any]) -> None:
    """Run a command line of Python: `-m MODULE`, `-c CODE` or a path, with `-P` or without."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if request["group"]:
        os.setpgid(0, request["group"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    first, *rest = request["arguments"]
    if first == "-P":
        first, *rest = rest
    match first:
        case "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        case "-c":
            sys.argv = ["-c", *rest[1:]]
            exec(rest[0], {"__name__": "__main__"})  # noqa: S102 - as `python -c` does
        case path:
            sys.argv = [path, *rest]
            runpy.run_path(path, run_name="__main__")


def end(code: int) -> None:
    """End this process as the interpreter does, but without freeing each imported module, which is slow."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins the threads
    atexit._run_exitfuncs()
    gc.collect()  # what was created after the fork; its finalizers may complain
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for package in _PRELOADED:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    import_module("tests.harness.forked_policy_check").fork_policy_checks()
    import_module("webhook.support.watched_file").WatchedFile.run.__defaults__ = (_FILE_POLL_SECONDS,)
    gc.collect()
    gc.freeze()
    try:
        run(Forks().serve())
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        end(error.code or 0)
    end(0)
