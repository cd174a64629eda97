"""The Dockerfile: it builds what the manifests start, from the lock, without test tools."""

import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.manifests import pod_spec
from tests.compose import sources

ROOT = sources.ROOT


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(requirement: str) -> str:
    return re.split(r"[\[>=<; ]", requirement)[0].lower()


def locked(name: str) -> dict[str, frozenset[str]]:
    """Return the packages of a lock: `name==version ; marker`, and the hashes."""
    packages = re.split(r"\n(?=[a-z0-9])", (ROOT / name).read_text().strip())
    return {
        package.splitlines()[0].rstrip(" \\"): frozenset(re.findall(r"--hash=(\S+)", package)) for package in packages
    }


def installed(image: Path) -> set[str]:
    [folder] = image.glob("opt/podgate/lib/python*/site-packages")
    return {found.metadata["Name"].lower().replace("_", "-") for found in distributions(path=[str(folder)])}


# --- what it says ---


def test_every_stage_is_of_the_python_that_the_project_asks_for() -> None:
    versions = {stage[0].rest.split()[0] for stage in sources.stages()}
    needed = project()["project"]["requires-python"].removeprefix(">=")
    assert versions == {f"python:{needed}-slim"}


def test_it_runs_as_the_manifests_say() -> None:
    context = pod_spec()["securityContext"]
    assert sources.last("USER").rest == f"{context['runAsUser']}:{context['runAsGroup']}"
    [container] = pod_spec()["containers"]
    assert sources.last("EXPOSE").listed == [str(port["containerPort"]) for port in container["ports"]]
    assert container["command"][: len(sources.last("ENTRYPOINT").listed)] == sources.last("ENTRYPOINT").listed
    assert set(sources.last("ENTRYPOINT").listed) <= set(project()["project"]["scripts"])


def test_its_labels_are_the_projects() -> None:
    labels = dict(word.split("=", 1) for word in sources.last("LABEL").listed)
    about = project()["project"]
    wanted = {"title": about["name"], "version": about["version"], "licenses": about["license"]}
    assert {key: labels[f"org.opencontainers.image.{key}"] for key in wanted} == wanted
    assert labels["org.opencontainers.image.description"] in about["description"]
    [container] = pod_spec()["containers"]
    assert container["image"] == sources.own_image() == f"{about['name']}:{about['version']}"


def test_the_folder_of_the_keys_belongs_to_its_user() -> None:
    user, group = sources.last("USER").rest.split(":")
    made = sources.last("RUN").listed
    assert {f"--owner={user}", f"--group={group}", "--directory"} <= set(made)
    assert sources.services()["setup"].mounts == {made[-1]: "pki"}


@pytest.mark.parametrize(
    "path",
    [".git/config", ".venv/bin/python", "pki/ca.key", "tests/conftest.py", "webhook/__pycache__/x.pyc", "docs/x"],
)
def test_the_build_is_given_nothing_of_this(path: str) -> None:
    assert not sources.reaches_the_build(path)


def test_the_build_is_given_what_it_copies() -> None:
    copied = [name for one in sources.stages()[0] if one.word == "COPY" for name in one.listed[:-1]]
    assert {"webhook", "certs", "requirements.serve.lock"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert sources.reaches_the_build(name), name


# --- its lock ---


def test_its_lock_is_the_part_of_the_whole_that_a_server_needs() -> None:
    whole, part = locked("requirements.lock"), locked("requirements.serve.lock")
    assert {name: whole.get(name) for name in part} == part
    names = {name_of(name) for name in part}
    assert {name_of(name) for name in project()["project"]["dependencies"]} <= names
    tools = {name_of(name) for name in project()["dependency-groups"]["dev"]}
    assert names & tools == {"setuptools"}, "the backend that installs the project"


def test_both_locks_are_made_together() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nlock:\n")[2].partition("\n\n")[0]
    assert re.findall(r" -o (\S+)$", recipe, re.MULTILINE) == ["requirements.lock", "requirements.serve.lock"]


# --- what it makes ---


def test_the_image_holds_what_a_server_needs_and_no_tool(image_folder: Path) -> None:
    found = installed(image_folder)
    assert {"podgate", *(name_of(name) for name in project()["project"]["dependencies"])} <= found
    tools = {name_of(name) for name in project()["dependency-groups"]["dev"]}
    assert found & {"pip", *tools} == set()
    assert found <= {"podgate", *(name_of(name) for name in locked("requirements.serve.lock"))}


def test_the_image_holds_every_file_of_the_packages(image_folder: Path) -> None:
    """An editable install finds files beside the modules that a wheel leaves out unless it is told of them."""
    [folder] = image_folder.glob("opt/podgate/lib/python*/site-packages")
    files = {
        path.relative_to(ROOT)
        for name in ("webhook", "certs")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in files if not (folder / path).is_file()} == set()


def test_the_entrypoint_runs(image_folder: Path) -> None:
    command = image_folder / "opt/podgate/bin" / sources.last("ENTRYPOINT").listed[0]
    done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True, env={})
    assert done.stdout == f"podgate {project()['project']['version']}\n"
