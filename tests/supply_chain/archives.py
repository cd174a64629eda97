"""Wheel, source archive, bill of materials and checksums of a commit: `python -m tests.supply_chain.archives FOLDER`.

The same commit gives the same bytes, whoever builds it, where and when. Of what setuptools makes, the source archive
has times, owners and modes of the machine: it is packed again without them.
"""

import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.supply_chain.wheel_bill import write_wheel_bill

ROOT = Path(__file__).parents[2]
SUMS = "SHA256SUMS"
_UMASK = 0o022
_BUILD_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def build_archives(folder: Path) -> list[Path]:
    """Write the files of the commit that is checked out, from committed files only; the checksums are of the folder."""
    epoch = int(_run_git("log", "-1", "--format=%ct"))
    folder.mkdir(parents=True, exist_ok=True)
    umask = os.umask(_UMASK)
    try:
        with TemporaryDirectory() as temporary:
            sources, drafts = Path(temporary, "source"), Path(temporary, "drafts")
            drafts.mkdir()
            _extract(_run_git("archive", "HEAD"), sources)
            _build(sources, drafts, epoch)
            [wheel], [draft] = drafts.glob("*.whl"), drafts.glob("*.tar.gz")
            files = [folder / wheel.name, folder / draft.name, folder / f"{wheel.name}.cdx.json"]
            files[0].write_bytes(wheel.read_bytes())
            files[1].write_bytes(repack(draft.read_bytes(), epoch))
            files[2].write_text(write_wheel_bill(wheel, epoch))
    finally:
        os.umask(umask)
    (folder / SUMS).write_text(format_sums(folder))
    return files


def format_sums(folder: Path) -> str:
    """Return a line for each file of a folder, as sha256sum writes and checks it."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)


def repack(archive: bytes, epoch: int) -> bytes:
    """Return a tar.gz with the same files in the order of their names, of nobody, all as old as the commit."""
    packed = BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(archive)) as before,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.size, entry.mtime = member.type, member.size, epoch
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            after.addfile(entry, before.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), mtime=epoch)


def _extract(archive: bytes, folder: Path) -> None:
    """Extract files with plain modes: tar keeps those of the archive for root, and asks the umask for others."""
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        for member in files.getmembers():
            path, content = folder / member.name, files.extractfile(member) if member.isfile() else None
            if content is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _build(sources: Path, drafts: Path, epoch: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""}
    options = ("--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    _run(["-m", "pip", "wheel", *options, "--wheel-dir", str(drafts), "."], sources, environment)
    _run(["-c", _BUILD_SDIST, str(drafts)], sources, environment)


def _run(arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}")


def _run_git(*arguments: str) -> bytes:
    # The variables of a hook name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", *arguments], cwd=ROOT, env=environment, check=True, capture_output=True).stdout


if __name__ == "__main__":
    for built in build_archives(Path(sys.argv[1])):
        sys.stdout.write(f"{built}\n")
