"""Name patterns of the policy: an exact name, or a name with one `*` in place of a part."""

from collections.abc import Iterable


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether `text` matches `pattern`. Beginning and end may overlap: a*ab matches ab."""
    start, star, end = pattern.partition("*")
    return text.startswith(start) and text.endswith(end) if star else text == pattern


def matches_any(patterns: Iterable[str], text: str) -> bool:
    return any(matches_pattern(pattern, text) for pattern in patterns)


def is_within(pattern: str, outer: str) -> bool:
    """Return whether every name that matches `pattern` matches `outer`, each with at most one `*`, at an end."""
    if "*" not in pattern:
        return matches_pattern(outer, pattern)
    if outer == "*":
        return True
    if pattern.endswith("*") and outer.endswith("*"):
        return pattern[:-1].startswith(outer[:-1])
    return pattern.startswith("*") and outer.startswith("*") and pattern[1:].endswith(outer[1:])


def meet(one: str, other: str) -> bool:
    """Return whether some name matches both patterns, each with at most one `*`, at an end."""
    if "*" not in one or "*" not in other:
        exact, pattern = (one, other) if "*" not in one else (other, one)
        return matches_pattern(pattern, exact)
    if one.endswith("*") and other.endswith("*"):
        return one[:-1].startswith(other[:-1]) or other[:-1].startswith(one[:-1])
    if one.startswith("*") and other.startswith("*"):
        return one[1:].endswith(other[1:]) or other[1:].endswith(one[1:])
    return True


def split_patterns(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the exact names and the prefixes, which are fast to check with `in` and `startswith`."""
    exact, prefixes = set(), []
    for pattern in patterns:
        if pattern.endswith("*"):
            prefixes.append(pattern[:-1])
        else:
            exact.add(pattern)
    return frozenset(exact), tuple(prefixes)


class PatternIndex:
    """Numbers by name patterns: to find those of a name costs the same however many patterns there are."""

    def __init__(self) -> None:
        self._exact: dict[str, list[int]] = {}
        self._by_ends: dict[tuple[str, str], list[int]] = {}
        self._lengths: set[tuple[int, int]] = set()
        """Lengths of the beginnings and ends: each is looked up once."""

    def add(self, pattern: str, number: int) -> None:
        """Add a number to those of a pattern."""
        start, star, end = pattern.partition("*")
        if not star:
            self._exact.setdefault(pattern, []).append(number)
            return
        self._by_ends.setdefault((start, end), []).append(number)
        self._lengths.add((len(start), len(end)))

    def find(self, name: str) -> set[int]:
        """Return the numbers of all patterns that a name matches."""
        found = set(self._exact.get(name, ()))
        for start, end in self._lengths:
            if max(start, end) <= len(name):
                found.update(self._by_ends.get((name[:start], name[len(name) - end :]), ()))
        return found
