"""The archives of a release: the same bytes on another machine, and what they contain."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.supply_chain.archives import SUMS, format_sums

ROOT = Path(__file__).parents[2]
OTHER_MACHINE = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "C", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}


def build(checkout: Path, folder: Path, umask: int, **variables: str) -> dict[str, bytes]:
    """Return the files by name that a checkout builds."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.supply_chain.archives", folder],
        cwd=checkout,
        env={**os.environ, **variables},
        umask=umask,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return build(ROOT, tmp_path_factory.mktemp("here") / "dist", 0o022, TZ="UTC", LC_ALL="C.UTF-8")


def test_another_checkout_gives_the_same_bytes(built: dict[str, bytes], tmp_path: Path) -> None:
    """At another path, of other times, under another umask, time zone and locale."""
    checkout = tmp_path / "another checkout"
    subprocess.run(["git", "clone", "--quiet", "--no-tags", ROOT, checkout], check=True, capture_output=True)
    for path in checkout.rglob("*.py"):
        os.utime(path, (1, 1))
    again = build(checkout, tmp_path / "dist", 0o077, **OTHER_MACHINE, HOME=str(tmp_path))
    assert again.keys() == built.keys()
    assert [name for name in built if again[name] != built[name]] == []


def test_checksums_are_those_of_all_files(built: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in built.items():
        (tmp_path / name).write_bytes(content)
    assert built[SUMS].decode() == format_sums(tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=tmp_path, check=True, capture_output=True)
    assert len(built[SUMS].splitlines()) == len(built) - 1 == 3


def test_wheel_has_the_packages_and_no_test(built: dict[str, bytes], tmp_path: Path) -> None:
    [(name, content)] = [(name, content) for name, content in built.items() if name.endswith(".whl")]
    (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        entries = wheel.infolist()
    tops = {entry.filename.partition("/")[0] for entry in entries}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"webhook", "certs", "manifests"}
    assert any(entry.filename.endswith(".dist-info/licenses/LICENSE") for entry in entries)
    assert {entry.external_attr >> 16 & 0o777 for entry in entries} <= {0o644, 0o664}


def test_source_archive_is_of_nobody(built: dict[str, bytes], tmp_path: Path) -> None:
    [(name, content)] = [(name, content) for name, content in built.items() if name.endswith(".tar.gz")]
    (tmp_path / name).write_bytes(content)
    with tarfile.open(tmp_path / name) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert len({member.mtime for member in members}) == 1
    assert {member.mode for member in members} <= {0o644, 0o755}
    assert f"{name.removesuffix('.tar.gz')}/LICENSE" in {member.name for member in members}
