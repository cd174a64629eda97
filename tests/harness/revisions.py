"""The code of other commits, from the history of this checkout, and the commit of the last release."""

import compileall
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.cluster.binaries import cache
from tests.cluster.toolchain import hold_lock

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
_PACKAGES = ("webhook", "certs", "manifests")
_RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - [\d-]{10}\n\nCommit `([0-9a-f]{40})`\.$", re.MULTILINE)


def find_last_release() -> tuple[str, str]:
    """Return the version and commit of the newest release of CHANGELOG.md."""
    match = _RELEASE.search(CHANGELOG.read_text())
    assert match is not None, "CHANGELOG.md: no `## [X.Y.Z] - YYYY-MM-DD` that is followed by its commit"
    return match[1], match[2]


def check_out(revision: str, *, with_tests: bool = False) -> Path:
    """Return a folder with the packages of a commit, compiled; it is kept in the cache outside the tree."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", missing=revision).decode().strip()
    packages = (*_PACKAGES, "tests") if with_tests else _PACKAGES
    folder = cache() / (f"revision-{commit}-tests" if with_tests else f"revision-{commit}")
    with hold_lock(folder):
        if not folder.exists():
            archive = _git("archive", commit, *packages, missing=revision)
            draft = folder.with_name(f".{folder.name}")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            subprocess.run(["tar", "-x", "-C", draft], check=True, input=archive)
            draft.rename(folder)
            for package in _PACKAGES:
                compileall.compile_dir(folder / package, quiet=2)
    return folder


def _git(*arguments: str, missing: str) -> bytes:
    # The variables of a hook name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *arguments], cwd=ROOT, env=environment, check=False, capture_output=True)
    assert done.returncode == 0, (
        f"commit {missing} is not in this checkout, which the test needs with its history:"
        f" git fetch --unshallow, or clone without --depth\n{done.stderr.decode()}"
    )
    return done.stdout
