"""One running server on a free loopback port: stopped, killed, paused, restarted, and ended with the test."""

import os
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.cluster.processes import ComponentError, Processes, free_ports
from tests.redis_servers.inventory import RedisProgram
from tests.timeouts import HANG_SECONDS

_PORTS = range(12_000, 22_000)
"""A Cluster's bus has a port 10,000 higher, which is below those of outgoing connections as well."""
_ANSWER_TIMEOUT_SECONDS = 10


class RedisServer:
    """A server in `folder`, which is deleted with it. Use it as a context manager: leaving ends everything.

    It keeps nothing on disk unless `options`, which are its command line, say so: `"--appendonly", "yes"`. `username`
    and `password` are whom `cli` and `client` speak as, where `options` ask for that.
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
        return self._held.pid(self._name)

    @property
    def alive(self) -> bool:
        return self._processes is not None and self._processes.alive(self._name)

    def log(self) -> str:
        """Return what the server said since it was started last."""
        return self._held.log(self._name, 1000)

    def client(self, **settings: Any) -> redis.Redis:
        """Return a client; close it, or use it as a context manager."""
        told = {"socket_timeout": _ANSWER_TIMEOUT_SECONDS, "retry": None, **self._access, **settings}
        return redis.Redis(host="127.0.0.1", port=self.port, **told)

    def cli(self, *command: Any, **settings: Any) -> Any:
        """Return the answer to one command, on a connection of its own."""
        with self.client(**settings) as client:
            return client.execute_command(*command)

    def start(self) -> None:
        """Start it, and wait until it serves. The port stays the same from the first start on."""
        if self._processes is None:
            self.folder.mkdir(parents=True)
            self._processes = Processes(self.folder)
        try:
            while not self._started():
                pass
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """End it as an orderly shutdown does; a paused one too."""
        self.resume()
        self._held.stop(self._name)

    def kill(self) -> None:
        """End it as a crash does; a paused one too."""
        self._held.stop(self._name, kill=True)

    def pause(self) -> None:
        """Stop it from running at all: its connections stay, and new ones are accepted by the kernel alone."""
        self._held.require(self._name)
        if not self._is_paused:
            os.kill(self.pid, signal.SIGSTOP)
            os.waitpid(self.pid, os.WUNTRACED)  # a signal sent is not a process stopped
        self._is_paused = True

    def resume(self) -> None:
        """Let it run again; nothing where it was not paused."""
        self._held.require(self._name)
        os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False

    def restart(self, *, keep_data: bool) -> None:
        """Stop it, if it runs, and start it again, with its data or with none; scripts are gone either way."""
        if self.alive:
            self.resume()
            if keep_data:
                self.cli("SAVE")
            self.stop()
        if not keep_data:
            self._forget()
        self.start()
        if "--save" not in self._options:
            (self.folder / "dump.rdb").unlink(missing_ok=True)  # else a later crash would bring this moment back

    def close(self) -> None:
        """End it at once and delete its folder."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _started(self) -> bool:
        """Start it; False where somebody has taken the port, and another may be tried."""
        is_new = not self.port
        if is_new:
            self.port = _free_port()
        self._starts += 1
        self._is_paused = False
        self._held.start(self._name, self._command())
        deadline = time.monotonic() + HANG_SECONDS
        while self._READY not in self.log():
            if not self.alive:
                if not is_new or "Address already in use" not in self.log():
                    self._held.require(self._name)
                self._held.stop(self._name)
                self.port = 0
                return False
            if time.monotonic() > deadline:
                raise ComponentError(f"{self.program.name} is not ready:\n{self.log()}")
            time.sleep(0.01)
        return True

    def _command(self) -> list[str | Path]:
        # Redis ends over a locale that the machine does not have, and takes the last of what is told twice.
        command = ["env", "LC_ALL=C", self.program.path, "--bind", "127.0.0.1", "--port", str(self.port)]
        return [*command, "--save", "", "--appendonly", "no", *self._options]

    def _forget(self) -> None:
        for path in self.folder.glob("appendonly*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()  # 6.2 has a file, its successors a folder
        (self.folder / "dump.rdb").unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return f"{self.program.name}-{self._starts}"  # so that each start has a log of its own

    @property
    def _held(self) -> Processes:
        assert self._processes is not None, f"{self.program.name} was not started"
        return self._processes


def _free_port() -> int:
    """Return a port that nothing listens on; another process may be faster, then its user tries again."""
    [port] = free_ports(1, _PORTS)
    return port
