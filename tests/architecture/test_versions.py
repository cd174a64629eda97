"""Every file agrees with the version of pyproject.toml, and the changelog names the commits of releases."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from tests.harness.revisions import ROOT, check_out, find_last_release

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = re.compile(r"\bpodgate:(\d+\.\d[\w.-]*)")
SHIPPED = ("Dockerfile", "docker-compose.yml", "README.md", "docs", "manifests")


def list_shipped() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *SHIPPED], cwd=ROOT, check=True, capture_output=True, text=True)
    texts = (ROOT / name for name in listed.stdout.split("\0") if name and not name.endswith(".png"))
    return [path for path in texts if path.is_file()]


def test_installed_package_has_the_version() -> None:
    """After a change of the version, `make setup` installs it."""
    assert version("podgate") == VERSION


def test_every_image_has_the_version() -> None:
    named = {str(path.relative_to(ROOT)): set(IMAGE.findall(path.read_text())) for path in list_shipped()}
    assert len([name for name, versions in named.items() if versions]) >= 4
    assert {name: versions for name, versions in named.items() if versions - {VERSION}} == {}


def test_image_label_has_the_version() -> None:
    assert f'org.opencontainers.image.version="{VERSION}"' in (ROOT / "Dockerfile").read_text()


def test_chart_has_the_version() -> None:
    chart = yaml.safe_load((ROOT / "manifests" / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_last_release_is_the_version_of_its_commit_and_not_newer_than_this_one() -> None:
    release, commit = find_last_release()
    done = subprocess.run(["git", "show", f"{commit}:pyproject.toml"], cwd=ROOT, check=True, capture_output=True)
    assert tomllib.loads(done.stdout.decode())["project"]["version"] == release
    assert _parse_numbers(release) <= _parse_numbers(VERSION)


def test_changelog_lists_unreleased_changes_first_and_releases_newest_first() -> None:
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:] == sorted(set(headings[1:]), key=_parse_numbers, reverse=True)


def test_commit_is_checked_out_as_it_was() -> None:
    commit = find_last_release()[1]
    folder = check_out(commit)
    there = subprocess.run(["git", "show", f"{commit}:webhook/__main__.py"], cwd=ROOT, check=True, capture_output=True)
    assert (folder / "webhook" / "__main__.py").read_bytes() == there.stdout


def test_commit_that_is_missing_is_named_with_a_remedy() -> None:
    with pytest.raises(AssertionError, match="git fetch --unshallow"):
        check_out("0" * 40)


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
