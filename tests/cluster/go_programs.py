"""Programs of pinned, checksummed Go modules, each built once into the cache outside the tree."""

import hashlib
import platform
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BUILD_FLAGS, build, go, hold_lock

NO_COLLECTIONS = {"GOGC": "off"}
"""Environment of a program that soon ends: its end frees the memory, and it need not collect garbage before."""


def go_program(module: Path, package: str) -> Path:
    """Return the program of a package in `module`, or of one that its go.mod pins; the first call builds it."""
    name = package.rpartition("/")[2]
    sources = sorted(file.name for file in module.glob("*.go"))
    files = [(module / file).read_bytes() for file in ("go.mod", "go.sum", *sources)]
    machine = repr((BUILD_FLAGS, platform.system(), platform.machine())).encode()
    digest = hashlib.sha256(b"\0".join([*files, machine])).hexdigest()[:16]
    path = cache() / f"{name}-{digest}" / name
    if not path.exists():
        with hold_lock(path.parent):
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                click.echo(f"building {name} ...", err=True)
                build(go(cache()), module, package, path)
    return path
