"""Helpers of the `dockerfile` tests that other tests use, too."""

import re

from tests.compose import sources

ROOT = sources.ROOT


def read_lock(name: str) -> dict[str, frozenset[str]]:
    """Return the packages of a lock, `name==version ; marker`, and their hashes."""
    packages = re.split(r"\n(?=[a-z0-9])", (ROOT / name).read_text().strip())
    return {
        package.splitlines()[0].rstrip(" \\"): frozenset(re.findall(r"--hash=(\S+)", package)) for package in packages
    }
