"""Names by pattern, as the policy writes them: exact, or the beginning of one and a single `*` at the end."""

from collections.abc import Iterable


def fits(pattern: str, text: str) -> bool:
    """Return whether `text` is `pattern`, which may end in one `*`."""
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


def any_fits(patterns: Iterable[str], text: str) -> bool:
    return any(fits(pattern, text) for pattern in patterns)


def split(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the exact names and the beginnings, for who asks often: `in` the one, `startswith` the other."""
    exact, beginnings = set(), []
    for pattern in patterns:
        if pattern.endswith("*"):
            beginnings.append(pattern[:-1])
        else:
            exact.add(pattern)
    return frozenset(exact), tuple(beginnings)
