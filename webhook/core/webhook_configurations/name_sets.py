"""Name sets: unions and differences of name patterns. Two patterns are either nested or disjoint."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from webhook.core.kubernetes.name_patterns import matches_any

Patterns = frozenset[str]
EVERY = "*"
NONE: Patterns = frozenset()


@dataclass(frozen=True, slots=True)
class NameSet:
    """Names that match a pattern of `inside` and none of `outside`; `of` leaves out redundant patterns."""

    inside: Patterns
    outside: Patterns = NONE

    @classmethod
    def of(cls, inside: Iterable[str], outside: Iterable[str] = ()) -> Self:
        without = frozenset(outside)
        left = _widest(pattern for pattern in inside if not is_covered(pattern, without))
        return cls(left, _widest(pattern for pattern in without if is_covered(pattern, left)))

    def __bool__(self) -> bool:
        return bool(self.inside)

    def __contains__(self, name: str) -> bool:
        return matches_any(self.inside, name) and not matches_any(self.outside, name)

    def within(self, patterns: Patterns) -> Self:
        """Return the names that match one of `patterns`."""
        ours = (pattern for pattern in self.inside if is_covered(pattern, patterns))
        theirs = (pattern for pattern in patterns if is_covered(pattern, self.inside))
        return self.of((*ours, *theirs), self.outside)

    def without(self, patterns: Patterns) -> Self:
        """Return the names that match none of `patterns`."""
        return self.of(self.inside, self.outside | patterns)


def covers(patterns: Patterns, others: Patterns) -> bool:
    """Return whether `patterns` match all that `others` match."""
    return all(is_covered(other, patterns) for other in others)


def is_covered(pattern: str, patterns: Patterns) -> bool:
    """Return whether one of `patterns` matches all that `pattern` matches."""
    return pattern in patterns or _is_narrower(pattern, patterns)


def _widest(patterns: Iterable[str]) -> Patterns:
    """Leave out patterns that another one covers."""
    some = frozenset(patterns)
    return frozenset(pattern for pattern in some if not _is_narrower(pattern, some))


def _is_narrower(pattern: str, patterns: Patterns) -> bool:
    """Return whether `patterns` has a wider pattern than `pattern`."""
    base = pattern.removesuffix("*")
    shorter = len(base) if pattern.endswith("*") else len(base) + 1
    return any(f"{base[:length]}*" in patterns for length in range(shorter))
