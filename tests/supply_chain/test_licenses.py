"""Licences: those of all locked packages are known and compatible with Podgate's, and the page lists them."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest

from tests.supply_chain.licenses import (
    DEVELOPMENT_LOCK,
    PAGE,
    SHIPPED_LOCK,
    STATED,
    find_license,
    format_page,
    is_accepted,
    list_packages,
    read_license,
)

PACKAGES = sorted({*list_packages(SHIPPED_LOCK), *list_packages(DEVELOPMENT_LOCK)})


@pytest.mark.parametrize("package", PACKAGES)
def test_license_is_known_and_compatible(package: str) -> None:
    """Another one needs a decision, whether its conditions are compatible with Apache-2.0."""
    found = find_license(package)
    assert found.expression, f"{package}: its metadata state no licence: read its files, then add it to STATED"
    assert is_accepted(found.expression), found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("LGPL-2.1-or-later", False),
        ("AGPL-3.0-only AND MIT", False),
        ("BUSL-1.1", False),
        ("LicenseRef-Proprietary", False),
        ("(MIT)", False),
        ("", False),
    ],
)
def test_incompatible_licenses_are_refused(expression: str, *, expected: bool) -> None:
    assert is_accepted(expression) is expected


@pytest.mark.parametrize("package", STATED)
def test_stated_licenses_are_needed_and_contradict_no_metadata(package: str) -> None:
    assert package in PACKAGES
    try:
        found = read_license(distribution(package))
    except PackageNotFoundError:
        return
    assert found in {"", STATED[package][0], *STATED[package][0].split(" OR ")}


def test_page_lists_the_licenses(*, refresh_goldens: bool) -> None:
    """`pytest --refresh-goldens` writes it."""
    if refresh_goldens:
        PAGE.write_text(format_page())
    assert PAGE.read_text() == format_page()
