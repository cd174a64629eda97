"""The Dockerfile builds the image of the manifests from the lock, without test tools."""

import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.manifests import pod_spec
from tests.compose import sources
from tests.compose.dockerfile import ROOT, read_lock


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(requirement: str) -> str:
    return re.split(r"[\[>=<; ]", requirement)[0].lower()


def list_installed(image: Path) -> set[str]:
    [folder] = image.glob("opt/podgate/lib/python*/site-packages")
    return {package.metadata["Name"].lower().replace("_", "-") for package in distributions(path=[str(folder)])}


# --- instructions ---


def test_every_stage_has_the_required_python_version() -> None:
    needed = project()["project"]["requires-python"].removeprefix(">=")
    assert {stage[0].rest.split()[0] for stage in sources.stages()} == {"${BASE}"}
    assert f"ARG BASE=python:{needed}-slim\n" in sources.DOCKERFILE.read_text()


def test_image_has_the_user_ports_and_command_of_the_manifests() -> None:
    context = pod_spec()["securityContext"]
    assert sources.find_last("USER").rest == f"{context['runAsUser']}:{context['runAsGroup']}"
    [container] = pod_spec()["containers"]
    assert sources.find_last("EXPOSE").listed == [str(port["containerPort"]) for port in container["ports"]]
    assert container["command"][: len(sources.find_last("ENTRYPOINT").listed)] == sources.find_last("ENTRYPOINT").listed
    assert set(sources.find_last("ENTRYPOINT").listed) <= set(project()["project"]["scripts"])


def test_labels_are_those_of_the_project() -> None:
    labels = dict(word.split("=", 1) for word in sources.find_last("LABEL").listed)
    about = project()["project"]
    expected = {"title": about["name"], "version": about["version"], "licenses": about["license"]}
    assert {key: labels[f"org.opencontainers.image.{key}"] for key in expected} == expected
    assert labels["org.opencontainers.image.description"] in about["description"]
    [container] = pod_spec()["containers"]
    assert container["image"] == sources.find_own_image() == f"{about['name']}:{about['version']}"


def test_folder_of_the_keys_belongs_to_the_image_user() -> None:
    user, group = sources.find_last("USER").rest.split(":")
    install_command = next(step.listed for step in sources.stages()[-1] if step.rest.startswith("install "))
    assert {f"--owner={user}", f"--group={group}", "--directory"} <= set(install_command)
    assert sources.services()["setup"].mounts == {install_command[-1]: "pki"}


@pytest.mark.parametrize(
    "path",
    [".git/config", ".venv/bin/python", "pki/ca.key", "tests/conftest.py", "webhook/__pycache__/x.pyc", "docs/x"],
)
def test_build_context_excludes_secrets_tests_and_caches(path: str) -> None:
    assert not sources.is_in_build_context(path)


def test_build_context_includes_every_copied_path() -> None:
    copied = [name for step in sources.stages()[0] if step.word == "COPY" for name in step.listed[:-1]]
    assert {"webhook", "certs", "requirements.serve.lock"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert sources.is_in_build_context(name), name


# --- the lock ---


def test_lock_of_the_image_is_the_server_part_of_the_whole_lock() -> None:
    full_lock, image_lock = read_lock("requirements.lock"), read_lock("requirements.serve.lock")
    assert {name: full_lock.get(name) for name in image_lock} == image_lock
    names = {name_of(name) for name in image_lock}
    assert {name_of(name) for name in project()["project"]["dependencies"]} <= names
    tools = {name_of(name) for name in project()["dependency-groups"]["dev"]}
    assert names & tools == {"setuptools"}, "the backend that installs the project"


def test_make_lock_writes_both_locks() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nlock:\n")[2].partition("\n\n")[0]
    assert re.findall(r" -o (\S+)$", recipe, re.MULTILINE) == ["requirements.lock", "requirements.serve.lock"]


# --- the image ---


def test_image_contains_the_server_dependencies_and_no_tools(image_folder: Path) -> None:
    packages = list_installed(image_folder)
    assert {"podgate", *(name_of(name) for name in project()["project"]["dependencies"])} <= packages
    tools = {name_of(name) for name in project()["dependency-groups"]["dev"]}
    assert packages & {"pip", *tools} == set()
    assert packages <= {"podgate", *(name_of(name) for name in read_lock("requirements.serve.lock"))}


def test_image_contains_every_file_of_the_packages(image_folder: Path) -> None:
    """A wheel omits data files that are not declared; an editable install finds them anyway."""
    [folder] = image_folder.glob("opt/podgate/lib/python*/site-packages")
    files = {
        path.relative_to(ROOT)
        for name in ("webhook", "certs")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in files if not (folder / path).is_file()} == set()


def test_the_entrypoint_runs(image_folder: Path) -> None:
    command = image_folder / "opt/podgate/bin" / sources.find_last("ENTRYPOINT").listed[0]
    done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True, env={})
    assert done.stdout == f"podgate {project()['project']['version']}\n"
