"""Programs that build an image without a daemon, from Debian's packages: buildah and mmdebstrap."""

import os
import shutil
import subprocess
from pathlib import Path

import click

from tests.cluster.toolchain import BuildError

PACKAGES = ("buildah", "mmdebstrap")
"""Each has the name of its program."""


def install() -> None:
    """Install the packages that are missing, with apt-get and as root."""
    if os.geteuid() != 0:
        raise BuildError(f"an image is built as root here, and this is user {os.geteuid()}: sudo make image-test")
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise BuildError(f"{', '.join(missing)}: not on the PATH, and there is no apt-get: install them")
    click.echo(f"installing {', '.join(missing)} with apt-get ...", err=True)
    run("apt-get", "update", "--quiet=2")
    run("apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *missing)


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Run a program; return its output."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise BuildError(f"{words} exited with {done.returncode}:\n{done.stdout[-10_000:]}{done.stderr[-10_000:]}")
    return done.stdout
