"""Licences of all locked packages, from their metadata, and the page about them.

`python -m tests.supply_chain.licenses` writes docs/licenses.md.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.compose.dockerfile import read_lock

PAGE = Path(__file__).parents[2] / "docs" / "licenses.md"
SHIPPED_LOCK, DEVELOPMENT_LOCK = "requirements.serve.lock", "requirements.lock"
BUILD_ONLY = frozenset({"setuptools"})
"""In the lock of the image, and not left in it."""

PERMISSIVE = frozenset(
    {"Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "PSF-2.0", "Unlicense", "0BSD", "Zlib"}
)
BY_FILE = frozenset({"MPL-2.0"})
"""Copyleft of single files, which are used unchanged: it asks nothing of other files."""
ACCEPTED = PERMISSIVE | BY_FILE

STATED: Mapping[str, tuple[str, str]] = {
    "async-timeout": ("Apache-2.0", "needed by Python before 3.11.3 alone"),
    "colorama": ("BSD-3-Clause", "needed on Windows alone"),
    "defusedxml": ("PSF-2.0", "its metadata say PSFL"),
    "deprecated": ("MIT", "another version for each Python"),
    "grimp": ("BSD-2-Clause", "its metadata say BSD 2-Clause License"),
    "import-linter": ("BSD-2-Clause", "its metadata say BSD 2-Clause License"),
    "jinja2": ("BSD-3-Clause", "its metadata say BSD License, its LICENSE.txt has three clauses"),
    "protobuf": ("BSD-3-Clause", "its metadata say 3-Clause BSD License"),
    "uvloop": ("Apache-2.0 OR MIT", "it has a file for each, and its metadata name them separately"),
}
"""Licences that metadata do not say as an SPDX expression, or that not every machine can read; with the reason."""
_SPELLINGS = {
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Usual names of licences that are exact."""
_FIRST_LINES = """# Licences

Podgate is licensed under [Apache-2.0](../LICENSE). These are the licences of the packages that it uses, in the versions
of the locks, as their metadata state them. All permit use, change and distribution together with Podgate. MPL-2.0 asks
that changed files of that package stay under it; Podgate changes none.

The [bills of materials](upgrade.md#the-image) of the image and of the wheel have them with versions.
"""
_LAST_LINES = "\n[All pages](README.md)\n"


class License(NamedTuple):
    """The licence of a package, as an SPDX expression; "" if it is not known."""

    package: str
    expression: str


def list_packages(lock: str) -> list[str]:
    """Return the names of all packages of a lock, also of those that other machines need."""
    return sorted({canonicalize_name(Requirement(line).name) for line in read_lock(lock)})


def find_license(package: str) -> License:
    """Return the licence that a package's metadata state exactly, else the stated one."""
    if package in STATED:
        return License(package, STATED[package][0])
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return License(package, "")
    return License(package, read_license(found))


def read_license(found: Distribution) -> str:
    """Return what an installed package's metadata state as an SPDX expression, "" if they do not."""
    classifiers = [
        text.rpartition(" :: ")[2] for text in found.metadata.get_all("Classifier") or () if "License ::" in text
    ]
    texts = [
        found.metadata["License-Expression"],
        found.metadata["License"],
        *(classifiers if len(classifiers) == 1 else ()),
    ]
    for text in texts:
        if text and (expression := _canonicalize(_SPELLINGS.get(text, text))):
            return expression
    return ""


def _canonicalize(text: str) -> str:
    try:
        return str(canonicalize_license_expression(text))
    except ValueError:
        return ""


def is_accepted(expression: str, accepted: frozenset[str] = ACCEPTED) -> bool:
    """Return whether one of the alternatives of an expression consists of accepted licences."""
    if not expression or re.search(r"[()]| WITH ", expression):
        return False
    return any(accepted.issuperset(option.split(" AND ")) for option in expression.split(" OR "))


def format_page() -> str:
    """Return the page."""
    shipped = [name for name in list_packages(SHIPPED_LOCK) if name not in BUILD_ONLY]
    others = [name for name in list_packages(DEVELOPMENT_LOCK) if name not in shipped]
    parts = (
        *(_FIRST_LINES, *_format_table("In the image, and installed with the wheel", shipped)),
        *_format_table("For building and testing alone", others),
        _LAST_LINES,
    )
    return "".join(parts)


def _format_table(title: str, packages: list[str]) -> Iterator[str]:
    yield f"\n## {title}\n\n| package | licence |\n|---|---|\n"
    for package in packages:
        yield f"| {package} | {find_license(package).expression} |\n"


if __name__ == "__main__":
    PAGE.write_text(format_page())
