"""Parts of a run: processes that can be killed, paused and started again, and what keeps them running otherwise."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.cluster.controlplane import ControlPlane
from tests.cluster.processes import ComponentError
from tests.redis_servers import RedisServer

_ROUND_SECONDS = 0.5


class Process(Protocol):
    """Of a part. `start` does not wait until the part is ready."""

    def start(self) -> None: ...

    def stop(self, *, kill: bool) -> None: ...

    def pid(self) -> int: ...

    def is_alive(self) -> bool: ...


@dataclass
class PlaneProcess:
    """A process of the control plane's group: one of its components, or `command`."""

    plane: ControlPlane
    name: str
    command: Callable[[], Sequence[str | Path]] | None = None

    def start(self) -> None:
        if self.command is None:
            self.plane.start_component(self.name)
        else:
            self.plane.processes.start(self.name, self.command())

    def stop(self, *, kill: bool) -> None:
        self.plane.stop_component(self.name, kill=kill)

    def pid(self) -> int:
        return self.plane.processes.pid(self.name)

    def is_alive(self) -> bool:
        return self.plane.processes.is_alive(self.name)


@dataclass
class RedisProcess:
    """A Redis or Sentinel, which keeps its port."""

    server: RedisServer

    def start(self) -> None:
        self.server.start()

    def stop(self, *, kill: bool) -> None:
        self.server.kill() if kill else self.server.stop()

    def pid(self) -> int:
        return self.server.pid

    def is_alive(self) -> bool:
        return self.server.alive


@dataclass
class Part:
    """A part of a run. While `is_held`, a fault keeps it down."""

    name: str
    kind: str
    process: Process
    is_held: bool = False
    clock: Path | None = None
    """The file that steps its clock, if that can be set."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid(), number)

    def kill(self) -> None:
        with self._lock:
            self.is_held = True
            self.process.stop(kill=True)

    def restart(self) -> None:
        """End it in order, unless it does not run, and start it again."""
        with self._lock:
            with contextlib.suppress(KeyError):
                self.process.stop(kill=False)
            self.process.start()

    def start(self) -> None:
        with self._lock:
            self.is_held = False
            if not self.process.is_alive():
                self.process.start()

    def revive(self) -> bool:
        """Start it if it has ended by itself; return whether it had."""
        with self._lock:
            if self.is_held or self.process.is_alive():
                return False
            with contextlib.suppress(KeyError):
                self.process.stop(kill=True)  # forgets the process that has ended
            self.process.start()
            return True


@dataclass
class Supervisor:
    """Starts parts again that have ended by themselves, as the kubelet does, and tells `on_exit` about each."""

    parts: Mapping[str, Part]
    on_exit: Callable[[Part, str], None]
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_ROUND_SECONDS):
            for part in self.parts.values():
                try:
                    if part.revive():
                        self.on_exit(part, "started again")
                except (ComponentError, AssertionError, OSError) as error:
                    self.on_exit(part, f"not started: {error}"[:2000])
