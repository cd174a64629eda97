"""One Redis or Valkey server on a free loopback port, which a test may stop, kill, pause and restart."""

import os
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.cluster.processes import ComponentError, Processes, find_free_ports
from tests.redis_servers.inventory import RedisProgram
from tests.timeouts import HANG_SECONDS

_PORTS = range(12_000, 22_000)
"""The bus port of a Cluster node is 10,000 higher; it is still below the ephemeral ports."""
_ANSWER_TIMEOUT_SECONDS = 10


class RedisServer:
    """A server in `folder`. Use it as a context manager: the exit stops the server and deletes the folder.

    It writes nothing to disk unless `options`, its command line, enable that: `"--appendonly", "yes"`. `cli` and
    `client` authenticate with `username` and `password`.
    """

    _READY = "Ready to accept connections"

    def __init__(
        self,
        program: RedisProgram,
        folder: Path,
        *options: str,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        self.program = program
        self.folder = folder
        self.port = port or 0
        self._options = options
        self._access = {"username": username, "password": password}
        self._processes: Processes | None = None
        self._starts = 0
        self._is_paused = False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._started_processes.pid(self._name)

    @property
    def alive(self) -> bool:
        return self._processes is not None and self._processes.is_alive(self._name)

    def log(self) -> str:
        """Return the log of the server since its last start."""
        return self._started_processes.log(self._name, 1000)

    def client(self, **settings: Any) -> redis.Redis:
        """Return a client; close it, or use it as a context manager."""
        arguments = {"socket_timeout": _ANSWER_TIMEOUT_SECONDS, "retry": None, **self._access, **settings}
        return redis.Redis(host="127.0.0.1", port=self.port, **arguments)

    def cli(self, *command: Any, **settings: Any) -> Any:
        """Run one command on a new connection; return its reply."""
        with self.client(**settings) as client:
            return client.execute_command(*command)

    def start(self) -> None:
        """Start it, and wait until it is ready. Later starts use the same port; one that fails leaves the data."""
        is_first = self._processes is None
        if self._processes is None:
            self.folder.mkdir(parents=True)
            self._processes = Processes(self.folder)
        try:
            while not self._try_start():
                pass
        except BaseException:
            if is_first:
                self.close()
            raise

    def stop(self) -> None:
        """Shut it down in order, even while it is paused."""
        self.resume()
        self._started_processes.stop(self._name)

    def kill(self) -> None:
        """Kill it, even while it is paused."""
        self._started_processes.stop(self._name, kill=True)

    def pause(self) -> None:
        """Suspend its process: its connections stay open, and only the kernel accepts new ones."""
        self._started_processes.require(self._name)
        if not self._is_paused:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)  # the signal takes effect asynchronously
        self._is_paused = True

    def resume(self) -> None:
        """Continue its process; without effect if it is not paused."""
        self._started_processes.require(self._name)
        os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False

    def restart(self, *, keep_data: bool) -> None:
        """Stop it if it runs, and start it again with or without its data; scripts are lost in both cases."""
        if self.alive:
            self.resume()
            if keep_data:
                self.cli("SAVE")
            self.stop()
        if not keep_data:
            self._forget()
        self.start()
        if "--save" not in self._options:
            (self.folder / "dump.rdb").unlink(missing_ok=True)  # else a start after a later crash would load it

    def close(self) -> None:
        """Kill it and delete its folder."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _try_start(self) -> bool:
        """Start it; return False if another process has taken the new port."""
        is_new = not self.port
        if is_new:
            self.port = _find_free_port()
        self._starts += 1
        self._is_paused = False
        self._started_processes.start(self._name, self._command())
        deadline = time.monotonic() + HANG_SECONDS
        while self._READY not in self.log():
            if not self.alive:
                if not is_new or "Address already in use" not in self.log():
                    self._started_processes.require(self._name)
                self._started_processes.stop(self._name)
                self.port = 0
                return False
            if time.monotonic() > deadline:
                raise ComponentError(f"{self.program.name} is not ready:\n{self.log()}")
            time.sleep(0.01)
        return True

    def _command(self) -> list[str | Path]:
        # Redis exits if the machine lacks the locale. Of repeated options the last one applies.
        command = ["env", "LC_ALL=C", self.program.path, "--bind", "127.0.0.1", "--port", str(self.port)]
        return [*command, "--save", "", "--appendonly", "no", *self._options]

    def _forget(self) -> None:
        for path in self.folder.glob("appendonly*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()  # a file in 6.2, a folder in later versions
        (self.folder / "dump.rdb").unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return f"{self.program.name}-{self._starts}"  # so that each start has its own log

    @property
    def _started_processes(self) -> Processes:
        assert self._processes is not None, f"{self.program.name} was not started"
        return self._processes


def _find_free_port() -> int:
    """Return a port that nothing listens on now; another process may still take it."""
    [port] = find_free_ports(1, _PORTS)
    return port
