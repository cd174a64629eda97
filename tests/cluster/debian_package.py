"""Programs of Debian's packages, unpacked into the cache outside the tree; nothing is installed."""

import hashlib
import platform
import shutil
import subprocess
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, hold_lock

_RELEASE = Path("/etc/os-release")


def unpack_debian_package(package: str, remedy: str) -> Path:
    """Return the folder with a package's files; the first call downloads it. `remedy` ends the error without it."""
    release = _RELEASE.read_text() if _RELEASE.exists() else ""
    folder = cache() / f"{package}-{hashlib.sha256(f'{release}{platform.machine()}'.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with hold_lock(folder):
            if not folder.exists():
                _fetch(package, folder, remedy)
    return folder


def _fetch(package: str, folder: Path, remedy: str) -> None:
    click.echo(f"fetching {package} into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "lists" / "partial").mkdir(parents=True)
    if not _apt(draft, remedy, "download", package):
        # No package lists, as in an image: fetch them into a folder of our own.
        own = ("-o", f"Dir::State::Lists={draft / 'lists'}", "-o", f"Dir::Cache={draft}")
        if not (_apt(draft, remedy, *own, "update") and _apt(draft, remedy, *own, "download", package)):
            raise BuildError(f"{package} could not be fetched: {remedy}, or try again")
    [archive] = draft.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", archive, draft / "root"], check=True)
    (draft / "root").rename(folder)
    shutil.rmtree(draft)


def _apt(folder: Path, remedy: str, *arguments: str) -> bool:
    # Without the sandbox's user, who cannot write into the cache of another one.
    command = ["apt-get", "-o", "APT::Sandbox::User=", *arguments]
    try:
        return subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        raise BuildError(f"there is no apt-get here: {remedy}") from None
