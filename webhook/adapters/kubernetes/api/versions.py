"""Comparison of resourceVersions."""


def number(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not one and cannot be compared."""
    return int(version) if version.isascii() and version.isdigit() else 0
