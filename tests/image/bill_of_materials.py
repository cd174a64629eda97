"""Bill of materials of an image's file system, in CycloneDX JSON: `python -m tests.image.bill_of_materials FOLDER`.

The versions are those that are installed; the hashes are those of the wheels, recorded by the Dockerfile when it
installed them.
"""

import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from importlib.metadata import PathDistribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.supply_chain.licenses import find_license, read_license

OWN = "podgate"


def bill_of_materials(root: Path, at: float) -> str:
    """Return the document for the file system in a folder: Podgate, its dependencies, Python, Debian's packages."""
    [environment] = root.glob("opt/podgate/lib/python*/site-packages")
    hashes = wheel_hashes(root / "opt/podgate/wheels.sha256")
    python = {component.name: component for component in _python_packages(environment, hashes)}
    own = python.pop(OWN)
    own.type = ComponentType.APPLICATION
    others = [*python.values(), _interpreter(root), *_debian_packages(root)]
    bom = Bom(components=others)
    bom.metadata.component = own
    bom.metadata.timestamp = datetime.fromtimestamp(at, UTC)
    bom.register_dependency(own, others)
    # The same image has the same document.
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(sorted(f"{each.purl}" for each in (own, *others))))
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def wheel_hashes(record: Path) -> dict[tuple[str, str], str]:
    """Return the SHA-256 of each wheel by the name and version of its package."""
    lines = [line.split(maxsplit=1) for line in record.read_text().splitlines()]
    parsed = {parse_wheel_filename(name): digest for digest, name in lines}
    return {(name, str(version)): digest for (name, version, *_), digest in parsed.items()}


def _python_packages(folder: Path, hashes: dict[tuple[str, str], str]) -> Iterator[Component]:
    licenses = LicenseFactory()
    for package in distributions(path=[str(folder)]):
        assert isinstance(package, PathDistribution)
        name = canonicalize_name(package.name)
        expression = find_license(name).expression or read_license(package)
        yield Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=package.version,
            purl=PackageURL("pypi", None, name, package.version),
            bom_ref=f"pypi/{name}@{package.version}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashes[name, package.version])],
            licenses=[licenses.make_from_string(expression)] if expression else [],
        )


def _interpreter(root: Path) -> Component:
    [version] = re.findall(r"^version = (\S+)", (root / "opt/podgate/pyvenv.cfg").read_text(), re.MULTILINE)
    return Component(
        type=ComponentType.PLATFORM,
        name="python",
        version=version,
        purl=PackageURL("generic", None, "python", version),
        bom_ref=f"generic/python@{version}",
    )


def _debian_packages(root: Path) -> Iterator[Component]:
    for paragraph in (root / "var/lib/dpkg/status").read_text().strip().split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        yield Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            purl=PackageURL("deb", "debian", name, version, {"arch": architecture}),
            bom_ref=f"deb/{name}@{version}",
        )


if __name__ == "__main__":
    epoch = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    sys.stdout.write(bill_of_materials(Path(sys.argv[1]), epoch))
