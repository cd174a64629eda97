"""Programs that the benchmark builds once into the cache outside the tree.

The load generator, the Go webhooks and the bare client of releases are in the module `go`. kopf is installed in a
separate virtual environment.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BUILD_FLAGS, BuildError, build, go, hold_lock, run_go

MODULE = Path(__file__).with_name("go")
KOPF_REQUIREMENTS = Path(__file__).with_name("kopf.requirements")


@dataclass(frozen=True)
class GoPrograms:
    """Paths of the programs."""

    loadgen: Path
    gowebhook: Path
    controllerruntime: Path
    patcher: Path


def go_programs() -> GoPrograms:
    """Return the Go programs; they are vetted and built if their sources have changed."""
    sources = [path for path in sorted(MODULE.rglob("*")) if path.is_file()]
    folder = cache() / f"bench-{_digest(*sources)}"
    paths = [folder / program.name for program in fields(GoPrograms)]
    programs = GoPrograms(*paths)
    if not all(path.exists() for path in paths):
        with hold_lock(folder):
            folder.mkdir(exist_ok=True)
            compiler = go(cache())
            for path in (path for path in paths if not path.exists()):
                click.echo(f"building {path.name} ...", err=True)
                run_go(compiler, MODULE, "vet", *BUILD_FLAGS, f"./{path.name}")
                build(compiler, MODULE, f"./{path.name}", path)
    return programs


def kopf_python() -> Path:
    """Return the Python interpreter of the environment that contains kopf and its dependencies."""
    folder = cache() / f"kopf-{_digest(KOPF_REQUIREMENTS)}-{sys.version_info.major}.{sys.version_info.minor}"
    python, made = folder / "bin" / "python", folder / "made"
    with hold_lock(folder):
        if not made.exists():
            install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes")
            _do(sys.executable, "-m", "venv", "--clear", folder)
            _do(python, *install, "--requirement", KOPF_REQUIREMENTS)
            made.touch()
    return python


def _digest(*paths: Path) -> str:
    parts = [part for path in paths for part in (path.name.encode(), path.read_bytes())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _do(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command))} exited with {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    go_programs()
