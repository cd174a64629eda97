"""JSON that is nested deeply."""

from webhook.core.json_depth import DEPTH_MAX

BEYOND_EACH_INTERPRETER = 1_000_000
"""Levels that fit on no stack: CPython 3.14, which goes deepest so far, follows a quarter of a million."""


def nest(levels: int, begin: str = "[", end: str = "]") -> str:
    return begin * levels + "1" + end * levels


TOO_DEEP = nest(DEPTH_MAX + 1)
"""Within the bounds of each interpreter."""
