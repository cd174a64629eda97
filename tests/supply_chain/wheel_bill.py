"""Bill of materials of the wheel, in CycloneDX JSON: the packages that its requirements resolve to in the lock.

Whoever installs the wheel may get newer ones: these are the versions that a release was tested with.
"""

import hashlib
import re
import tomllib
import uuid
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.compose.dockerfile import read_lock
from tests.supply_chain.licenses import BUILD_ONLY, SHIPPED_LOCK, find_license

ROOT = Path(__file__).parents[2]
_OWN_LICENSE = "Apache-2.0"
_FILES = "the hash of each file that the lock accepts"


def write_wheel_bill(wheel: Path, epoch: int) -> str:
    """Return the document for a wheel of this commit."""
    name, version, *_ = parse_wheel_filename(wheel.name)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    licenses = LicenseFactory()
    own = Component(
        type=ComponentType.APPLICATION,
        name=name,
        version=str(version),
        purl=PackageURL("pypi", None, name, str(version), {"file_name": wheel.name}),
        bom_ref=f"pypi/{name}@{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[licenses.make_from_string(_OWN_LICENSE)],
    )
    others = list_components()
    bom = Bom(components=others)
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.register_dependency(own, others)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join((digest, *sorted(f"{each.purl}" for each in others))))
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def list_components() -> list[Component]:
    """Return the packages of the lock, each with the hashes of the files that pip accepts for it."""
    required, licenses = _find_required(), LicenseFactory()
    components = []
    for line, hashes in read_lock(SHIPPED_LOCK).items():
        requirement = Requirement(line)
        name, version = canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("==")
        if name in BUILD_ONLY:
            continue
        is_required = name in required and requirement.marker is None
        # A component has one hash of a kind, and a package a file for each platform.
        files = [HashType(alg=HashAlgorithm.SHA_256, content=each.removeprefix("sha256:")) for each in sorted(hashes)]
        purl = PackageURL("pypi", None, name, version)
        components.append(
            Component(
                type=ComponentType.LIBRARY,
                name=name,
                version=version,
                purl=purl,
                bom_ref=f"pypi/{name}@{version}",
                scope=ComponentScope.REQUIRED if is_required else ComponentScope.OPTIONAL,
                licenses=[licenses.make_from_string(find_license(name).expression)],
                external_references=[
                    ExternalReference(
                        type=ExternalReferenceType.DISTRIBUTION, url=XsUri(f"{purl}"), comment=_FILES, hashes=files
                    )
                ],
            )
        )
    return components


def _find_required() -> set[str]:
    """Return what the project needs without extras, and what those packages need, on any machine."""
    texts: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: set[str] = set()
    waiting = [Requirement(text) for text in texts]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            waiting += _list_needs(name, requirement.extras)
    return found


def _list_needs(name: str, extras: set[str]) -> list[Requirement]:
    try:
        needs = [Requirement(text) for text in distribution(name).requires or ()]
    except PackageNotFoundError:  # of another machine
        return []
    wanted = [re.findall(r"extra == [\"']([\w.-]+)", str(need.marker)) for need in needs]
    return [need for need, of in zip(needs, wanted, strict=True) if not of or extras.intersection(of)]
