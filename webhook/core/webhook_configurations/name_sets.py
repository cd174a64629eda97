"""Set algebra: unions, differences and intersections of name patterns, and of label selectors.

Two patterns are nested, disjoint, or cross: a* and *b share a*b, which is a pattern again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from webhook.core.kubernetes.label_constraints import Constraint, Constraints
from webhook.core.kubernetes.name_patterns import matches_any, matches_pattern
from webhook.core.kubernetes.types import Requirement

_OPPOSITE = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
_ANYTHING = Constraint()


def list_requirements(labels: Constraints) -> Iterator[Requirement]:
    """Yield an equivalent list of expressions, as short as possible and in a stable order."""
    for key, constraint in sorted(labels.items()):
        if constraint.absent:
            yield Requirement(key, "DoesNotExist")
        elif constraint.allowed is not None:
            yield Requirement(key, "In", tuple(sorted(constraint.allowed)))
        else:
            if constraint.present:
                yield Requirement(key, "Exists")
            if constraint.denied:
                yield Requirement(key, "NotIn", tuple(sorted(constraint.denied)))


def narrow(labels: Constraints, *by: Requirement) -> Constraints | None:
    """Return `labels` and all of `by` combined; None if nothing can match."""
    found = dict(labels)
    for requirement in by:
        before = found.get(requirement.key, _ANYTHING)
        found[requirement.key] = before.narrow(requirement.operator, frozenset(requirement.values or ()))
        if found[requirement.key].is_impossible:
            return None
    return found


def list_contradictions(labels: Constraints) -> Iterator[tuple[Requirement, ...]]:
    """Yield disjoint sets of requirements that together are the complement of `labels`.

    Not (a and b and c) is: not a, or a and not b, or a and b and not c.
    """
    agreed: tuple[Requirement, ...] = ()
    for requirement in list_requirements(labels):
        yield (*agreed, Requirement(requirement.key, _OPPOSITE[requirement.operator], requirement.values))
        agreed = (*agreed, requirement)


Patterns = frozenset[str]
EVERY = "*"
NONE: Patterns = frozenset()


@dataclass(frozen=True, slots=True)
class NameSet:
    """Names that match a pattern of `inside` and none of `outside`; `of` leaves out redundant patterns."""

    inside: Patterns
    outside: Patterns = NONE

    @classmethod
    def from_patterns(cls, inside: Iterable[str], outside: Iterable[str] = ()) -> Self:
        without = frozenset(outside)
        left = _select_widest(pattern for pattern in inside if not is_covered(pattern, without))
        kept = (pattern for pattern in without if is_covered(pattern, left) or any(list_crossings({pattern}, left)))
        return cls(left, _select_widest(kept))

    def __bool__(self) -> bool:
        return bool(self.inside)

    def __contains__(self, name: str) -> bool:
        return matches_any(self.inside, name) and not matches_any(self.outside, name)

    def intersect(self, patterns: Patterns) -> Self:
        """Return the names that match one of `patterns`."""
        ours = (pattern for pattern in self.inside if is_covered(pattern, patterns))
        theirs = (pattern for pattern in patterns if is_covered(pattern, self.inside))
        return self.from_patterns((*ours, *theirs, *list_crossings(self.inside, patterns)), self.outside)

    def subtract(self, patterns: Patterns) -> Self:
        """Return the names that match none of `patterns`."""
        return self.from_patterns(self.inside, self.outside | patterns)


def covers(patterns: Patterns, others: Patterns) -> bool:
    """Return whether `patterns` match all that `others` match."""
    return all(is_covered(other, patterns) for other in others)


def is_covered(pattern: str, patterns: Patterns) -> bool:
    """Return whether one of `patterns` matches all that `pattern` matches."""
    return bool(patterns) and (pattern in patterns or _is_narrower(pattern, patterns))


def _select_widest(patterns: Iterable[str]) -> Patterns:
    """Leave out patterns that another one covers."""
    some = frozenset(patterns)
    if not any("*" in pattern for pattern in some):
        return some
    return frozenset(pattern for pattern in some if not _is_narrower(pattern, some))


def _is_narrower(pattern: str, patterns: Patterns) -> bool:
    """Return whether `patterns` has a wider pattern than `pattern`."""
    start, _, _ = pattern.partition("*")
    shorter = len(start) if pattern.endswith("*") else len(start) + 1
    if any(f"{start[:length]}*" in patterns for length in range(shorter)):
        return True
    return any(is_wider(other, pattern) for other in _select_with_end(patterns))


def is_wider(wide: str, pattern: str) -> bool:
    """Return whether `wide` matches all that `pattern` matches, and more."""
    if "*" not in wide or wide == pattern:
        return False
    if "*" not in pattern:
        return matches_pattern(wide, pattern)
    (start, _, end), (longer_start, _, longer_end) = wide.partition("*"), pattern.partition("*")
    return longer_start.startswith(start) and longer_end.endswith(end)


def list_crossings(some: Iterable[str], others: Patterns) -> Iterator[str]:
    """Yield the intersections of patterns of which neither covers the other."""
    for pattern in some:
        if "*" not in pattern:
            continue
        for other in _select_with_end(others) if pattern.endswith("*") else _select_with_star(others):
            start, end = _choose_longer_start(pattern, other), _choose_longer_end(pattern, other)
            if start is not None and end is not None and f"{start}*{end}" not in {pattern, other}:
                yield f"{start}*{end}"


def _choose_longer_start(pattern: str, other: str) -> str | None:
    short, long = sorted((pattern.partition("*")[0], other.partition("*")[0]), key=len)
    return long if long.startswith(short) else None


def _choose_longer_end(pattern: str, other: str) -> str | None:
    short, long = sorted((pattern.partition("*")[2], other.partition("*")[2]), key=len)
    return long if long.endswith(short) else None


@lru_cache(maxsize=256)
def _select_with_end(patterns: Patterns) -> tuple[str, ...]:
    """Return the patterns with something after the `*`: mostly none."""
    return tuple(pattern for pattern in patterns if "*" in pattern and not pattern.endswith("*"))


@lru_cache(maxsize=256)
def _select_with_star(patterns: Patterns) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if "*" in pattern)
