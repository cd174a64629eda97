"""Label selectors, compared by what they say: can one match at all, does one imply another? Syntax alone."""

from dataclasses import dataclass
from typing import Self

from webhook.core.kubernetes import LabelSelector


@dataclass(frozen=True, slots=True)
class Constraint:
    """All that one selector says of one label. `allowed` None: any value."""

    present: bool = False
    absent: bool = False
    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()

    def narrowed(self, operator: str, values: frozenset[str]) -> Self:
        present = self.present or operator in {"In", "Exists"}
        absent = self.absent or operator == "DoesNotExist"
        allowed, denied = self.allowed, self.denied
        if operator == "In":
            allowed = values if allowed is None else allowed & values
        elif operator == "NotIn":
            denied |= values
        return type(self)(present, absent, None if allowed is None else allowed - denied, denied)

    @property
    def impossible(self) -> bool:
        return (self.present and self.absent) or (self.allowed is not None and not self.allowed)

    def implies(self, other: "Constraint") -> bool:
        """Return whether whatever fits us fits `other`."""
        if (other.present and not self.present) or (other.absent and not self.absent):
            return False
        if other.allowed is not None and (self.allowed is None or not self.allowed <= other.allowed):
            return False
        spared = self.absent or other.denied <= self.denied
        return spared or (self.allowed is not None and self.allowed.isdisjoint(other.denied))


Constraints = dict[str, Constraint]
_ANYTHING = Constraint()


def constraints(selector: LabelSelector | None) -> Constraints:
    """Return what a selector says, by label."""
    found: Constraints = {}
    if selector is not None:
        for key, value in selector.match_labels.items():
            found[key] = found.get(key, _ANYTHING).narrowed("In", frozenset({value}))
        for expression in selector.match_expressions:
            before = found.get(expression.key, _ANYTHING)
            found[expression.key] = before.narrowed(expression.operator, frozenset(expression.values))
    return found


def imply(narrow: Constraints, wide: Constraints) -> bool:
    """Return whether all that `narrow` selects is selected by `wide`."""
    return all(narrow.get(key, _ANYTHING).implies(constraint) for key, constraint in wide.items())


def coverers(name: str) -> list[str]:
    """Return every pattern that fits all that `name` fits, widest first; each is exact, or ends in one `*`."""
    base = name.removesuffix("*")
    prefixes = [f"{base[:length]}*" for length in range(1, len(base) + 1)]
    return prefixes if name.endswith("*") else [*prefixes, name]
