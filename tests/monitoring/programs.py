"""Prometheus and promtool: those on the PATH, or Debian's package in a cache outside the tree."""

import functools
import hashlib
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, hold_lock

_PACKAGE = "prometheus"
_RELEASE = Path("/etc/os-release")


@dataclass(frozen=True)
class PrometheusPrograms:
    """Paths of the programs."""

    prometheus: Path
    promtool: Path


@functools.cache
def programs() -> PrometheusPrograms:
    """Return both programs; the first call downloads them, unless both are on the PATH."""
    on_path = shutil.which("prometheus"), shutil.which("promtool")
    if on_path[0] is not None and on_path[1] is not None:
        return PrometheusPrograms(Path(on_path[0]), Path(on_path[1]))
    release = _RELEASE.read_text() if _RELEASE.exists() else ""
    folder = cache() / f"prometheus-{hashlib.sha256(f'{release}{platform.machine()}'.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with hold_lock(folder):
            if not folder.exists():
                _fetch(folder)
    return PrometheusPrograms(folder / "usr" / "bin" / "prometheus", folder / "usr" / "bin" / "promtool")


def _fetch(folder: Path) -> None:
    click.echo(f"fetching {_PACKAGE} into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "lists" / "partial").mkdir(parents=True)
    if not _apt(draft, "download", _PACKAGE):
        # No package lists, as in an image: fetch them into a folder of our own.
        own = ("-o", f"Dir::State::Lists={draft / 'lists'}", "-o", f"Dir::Cache={draft}")
        if not (_apt(draft, *own, "update") and _apt(draft, *own, "download", _PACKAGE)):
            raise BuildError(f"{_PACKAGE} could not be fetched: install prometheus and promtool, or try again")
    [package] = draft.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, draft / "root"], check=True)
    (draft / "root").rename(folder)
    shutil.rmtree(draft)


def _apt(folder: Path, *arguments: str) -> bool:
    # Without the sandbox's user, who cannot write into the cache of another one.
    command = ["apt-get", "-o", "APT::Sandbox::User=", *arguments]
    try:
        return subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        raise BuildError("there is no apt-get here: install prometheus and promtool") from None
