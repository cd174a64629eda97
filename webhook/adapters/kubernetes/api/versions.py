"""An object's resourceVersion, compared."""


def number(version: str) -> int:
    """Return a version as the number that it is; 0 where it is none, which then is compared with nothing."""
    return int(version) if version.isascii() and version.isdigit() else 0
