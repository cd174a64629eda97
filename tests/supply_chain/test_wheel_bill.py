"""The wheel's bill of materials names what the lock names, with versions, hashes and licences."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.compose.dockerfile import read_lock
from tests.supply_chain.licenses import BUILD_ONLY, SHIPPED_LOCK
from tests.supply_chain.wheel_bill import write_wheel_bill

EPOCH = 1_700_000_000


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "podgate-9.8.7-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


@pytest.fixture
def document(wheel: Path) -> Any:
    return json.loads(write_wheel_bill(wheel, EPOCH))


def test_document_is_valid_and_always_the_same(wheel: Path) -> None:
    text = write_wheel_bill(wheel, EPOCH)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert write_wheel_bill(wheel, EPOCH) == text


def test_document_is_about_this_wheel(wheel: Path, document: Any) -> None:
    own = document["metadata"]["component"]
    assert (own["name"], own["version"]) == ("podgate", "9.8.7")
    assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    wheel.write_bytes(b"another wheel")
    assert json.loads(write_wheel_bill(wheel, EPOCH))["serialNumber"] != document["serialNumber"]


def test_every_locked_package_is_there_with_version_hashes_and_license(document: Any) -> None:
    found = {each["name"]: each for each in document["components"]}
    locked = {Requirement(line): hashes for line, hashes in read_lock(SHIPPED_LOCK).items()}
    assert found.keys() == {canonicalize_name(each.name) for each in locked} - BUILD_ONLY
    for requirement, hashes in locked.items():
        name = canonicalize_name(requirement.name)
        if name in BUILD_ONLY:
            continue
        component = found[name]
        assert component["version"] == str(requirement.specifier).removeprefix("==")
        [files] = component["externalReferences"]
        sums = {f"sha256:{each['content']}" for each in files["hashes"]}
        assert sums == hashes
        assert component["licenses"]


def test_only_extras_and_packages_of_some_machines_are_optional(document: Any) -> None:
    optional = {each["name"] for each in document["components"] if each["scope"] == "optional"}
    marked = {canonicalize_name(found.name) for found in map(Requirement, read_lock(SHIPPED_LOCK)) if found.marker}
    assert optional == {"cel-expr-python", *marked}
