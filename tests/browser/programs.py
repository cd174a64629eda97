"""Chromium of the PATH, else Debian's package, which set-up installs as root; and axe-core, pinned, from npm."""

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, hold_lock
from tests.image.programs import run

PACKAGES = ("chromium", "fonts-dejavu-core")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_REMEDY = "install chromium, such as with apt-get install chromium"
_AXE = "axe-core@4.14.1"
_AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="


def chromium() -> Path:
    """Return the program. BuildError: there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise BuildError(f"there is no chromium on the PATH: {_REMEDY}")
    return Path(found)


def install() -> None:
    """Install Debian's package unless there is a chromium."""
    if any(map(shutil.which, _NAMES)):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BuildError(f"the tests of the console need chromium: {_REMEDY}")
    click.echo("installing chromium with apt-get ...", err=True)
    run("apt-get", "update", "--quiet=2")
    run("apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *PACKAGES)


def axe() -> Path:
    """Return the script of axe-core, which checks the accessibility of a page; the first call fetches it."""
    script = cache() / f"{_AXE}.js"
    if not script.exists():
        with hold_lock(script):
            if not script.exists():
                _fetch_axe(script)
    return script


def _fetch_axe(script: Path) -> None:
    click.echo(f"fetching {_AXE} ...", err=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = ["npm", "pack", "--silent", "--ignore-scripts", _AXE]
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        except FileNotFoundError:
            raise BuildError(f"the tests of the console need {_AXE}, and there is no npm to fetch it") from None
        if done.returncode != 0:
            raise BuildError(f"{_AXE} could not be fetched: {done.stderr[-2000:]}")
        [package] = Path(folder).glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if digest != _AXE_SHA512:
            raise BuildError(f"{_AXE} is not what this checkout expects: its SHA-512 is {digest}")
        with tarfile.open(package) as files:
            found = files.extractfile("package/axe.min.js")
            assert found is not None
            draft = script.with_suffix(".draft")
            draft.write_bytes(found.read())
    draft.rename(script)
