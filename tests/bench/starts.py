"""Start of a server: time until it is ready, CPU time by part, and resident memory.

The parts are measured in separate processes: an empty interpreter, the command line without a server, and the check of
the policy. Bytecode is compiled before, else a new checkout would compile it at each start.
"""

import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import loop_stalls
from tests.bench.cpu import cpu_seconds
from tests.bench.interpreters import compile_modules, describe_interpreter
from tests.bench.policies import POLICY
from tests.bench.real_redis import real_redis
from tests.bench.spread import Spread
from tests.harness.revisions import check_out
from tests.harness.server_process import TREE, Files, resident_bytes
from tests.timeouts import HANG_SECONDS

ROUNDS = 7
BEFORE = "before: "
"""Prefix of the names of what was measured of another commit."""
_POLL_SECONDS = 0.005
_COMMAND_LINE = ("-m", "webhook", "serve", "--help")
_POLICY_CHECK = ("-m", "webhook.adapters.policy_process.child", "load", "serve")
_MIB = 1 << 20
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Start:
    """The measured starts of one configuration."""

    name: str
    ready_ms: list[float] = field(default_factory=list)
    server_ms: list[float] = field(default_factory=list)
    children_ms: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        measured = {name: Spread.from_values(values) for name, values in vars(self).items() if isinstance(values, list)}
        return {"name": self.name, **measured}

    def __str__(self) -> str:
        name, *measured = self.figures().values()
        ready, server, children, rss = (format(figure, ".0f") for figure in measured)
        return f"  {name:36} ready {ready}, CPU {server}, its children {children} ms; RSS {rss} MiB"


@dataclass(frozen=True)
class Build:
    """What a server is started from."""

    tree: Path = TREE
    python: str = sys.executable


@dataclass
class Part:
    """The CPU time of `python ARGUMENTS` of one build."""

    name: str
    arguments: tuple[str, ...]
    build: Build
    given: bytes = b""
    cpu_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {"name": self.name, "cpu_ms": Spread.from_values(self.cpu_ms)}

    def __str__(self) -> str:
        return f"  {self.name:36} CPU {Spread.from_values(self.cpu_ms):.0f} ms"

    def run(self) -> None:
        before = os.times()
        subprocess.run(
            [self.build.python, *self.arguments],
            input=self.given,
            stdout=subprocess.PIPE,
            cwd=self.build.tree,
            check=True,
        )
        after = os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        self.cpu_ms.append(used * 1e3)


def start(into: Start, files: Files, arguments: Sequence[str], build: Build) -> None:
    """Start one server, measure it when it is ready, and end it."""
    log = files.folder / "start.log"
    command = [build.python, "-m", "webhook", "serve", *files.arguments(), *arguments]
    began = time.perf_counter()
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, cwd=build.tree)
    try:
        _wait_until_ready(process, log)
        into.ready_ms.append((time.perf_counter() - began) * 1e3)
        into.server_ms.append(cpu_seconds(process.pid) * 1e3)
        into.children_ms.append(_read_children_seconds(process.pid) * 1e3)
        into.rss_mib.append(resident_bytes(process.pid) / _MIB)
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for the log line of the listening server. SystemExit if it has a reason not to be ready."""
    while True:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                if json.loads(line).get("not_ready"):
                    raise SystemExit(f"error: not ready: {line}")
                return
        if process.poll() is not None:
            raise SystemExit(f"error: the server exited: {log.read_text()}")
        time.sleep(_POLL_SECONDS)


def _read_children_seconds(pid: int) -> float:
    """Return the CPU time of the ended children of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND


def list_builds(revision: str | None, interpreters: Sequence[str]) -> dict[str, Build]:
    """Return what is measured by the prefix of its names: bytecode is compiled for all."""
    builds = {"": Build(), **({BEFORE: Build(check_out(revision))} if revision else {})}
    for build in builds.values():
        compileall.compile_dir(build.tree / "webhook", quiet=1)
    for python in interpreters:
        compile_modules(python)
    return builds | {f"{describe_interpreter(python)}: ": Build(python=python) for python in interpreters}


def measure(
    rounds: int = ROUNDS,
    revision: str | None = None,
    interpreters: Sequence[str] = (),
    services: int = loop_stalls.SERVICES,
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures; `revision` adds the server of another commit."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        redis = stack.enter_context(real_redis())
        small, large = folder / "small", folder / "large"
        small.mkdir()
        large.mkdir()
        small_files = Files.create(small, POLICY)
        many = Files.create(large, loop_stalls.policy(1, services).decode())
        builds = list_builds(revision, interpreters)
        stores = {"memory": (), "Redis": ("--store", redis.url)}
        starts = [
            (Start(f"{when}{store}, {name}"), files, arguments, build)
            for name, files in (("a few services", small_files), (f"{services} services", many))
            for store, arguments in stores.items()
            for when, build in builds.items()
        ]
        parts = [
            part
            for when, build in builds.items()
            for part in (
                Part(f"{when}interpreter", ("-c", "pass"), build),
                Part(f"{when}serve --help, interpreter included", _COMMAND_LINE, build),
                Part(f"{when}policy check", _POLICY_CHECK, build, small_files.policy.read_bytes()),
                Part(f"{when}policy check, {services} services", _POLICY_CHECK, build, many.policy.read_bytes()),
            )
        ]
        for number in range(rounds):
            for measuring in starts if number % 2 else reversed(starts):
                start(*measuring)
            for part in parts if number % 2 else reversed(parts):
                part.run()
    lines = [
        f"start of a server, {rounds} interleaved rounds",
        *(str(measuring[0]) for measuring in starts),
        *map(str, parts),
    ]
    return lines, [part.figures() for part in (*(measuring[0] for measuring in starts), *parts)]
