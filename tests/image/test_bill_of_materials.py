"""The image's bill of materials names what the lock names, by version and hash."""

import json
import re
from importlib.metadata import distributions
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.compose import sources
from tests.compose.dockerfile import read_lock
from tests.image.bill_of_materials import bill_of_materials
from tests.image.conftest import EPOCH
from tests.image.engine import Container

NOT_LEFT = {"setuptools", "pip"}
"""What builds the project; the image has neither."""


@pytest.fixture(scope="module")
def text(container: Container) -> str:
    return bill_of_materials(container.root, EPOCH)


@pytest.fixture(scope="module")
def components(text: str) -> dict[str, dict[str, Any]]:
    document = json.loads(text)
    return {each["purl"]: each for each in (document["metadata"]["component"], *document["components"])}


def test_document_is_valid(text: str) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"version": "', '"versions": "')) is not None


def test_same_image_has_the_same_document(container: Container, text: str) -> None:
    assert bill_of_materials(container.root, EPOCH) == text


def test_every_locked_package_is_there_with_version_and_hash(components: dict[str, dict[str, Any]]) -> None:
    needed = {Requirement(line): hashes for line, hashes in read_lock("requirements.serve.lock").items()}
    applying = {
        requirement: hashes
        for requirement, hashes in needed.items()
        if (requirement.marker is None or requirement.marker.evaluate()) and requirement.name not in NOT_LEFT
    }
    assert len(applying) > 10
    for requirement, hashes in applying.items():
        version = str(requirement.specifier).removeprefix("==")
        component = components[f"pkg:pypi/{canonicalize_name(requirement.name)}@{version}"]
        [digest] = component["hashes"]
        assert f"sha256:{digest['content']}" in hashes, requirement.name


def test_every_installed_package_is_there(container: Container, components: dict[str, dict[str, Any]]) -> None:
    [folder] = container.root.glob("opt/podgate/lib/python*/site-packages")
    installed = {
        f"pkg:pypi/{canonicalize_name(each.name)}@{each.version}" for each in distributions(path=[str(folder)])
    }
    assert installed == {purl for purl in components if purl.startswith("pkg:pypi/")}


def test_every_python_package_has_a_license(components: dict[str, dict[str, Any]]) -> None:
    assert [
        purl for purl, each in components.items() if purl.startswith("pkg:pypi/") and not each.get("licenses")
    ] == []


def test_base_is_there(container: Container, components: dict[str, dict[str, Any]]) -> None:
    status = (container.root / "var/lib/dpkg/status").read_text()
    names = {re.match(r"pkg:deb/debian/([^@]+)@", purl) for purl in components}
    assert {match[1].replace("%2B", "+") for match in names if match} == set(
        re.findall(r"^Package: (\S+)$", status, re.MULTILINE)
    )
    version = container.run("python", "-c", "import platform; print(platform.python_version())")
    assert f"pkg:generic/python@{version}" in components


def test_own_version_is_the_project_version(text: str) -> None:
    assert json.loads(text)["metadata"]["component"]["version"] == sources.find_own_image().partition(":")[2]
