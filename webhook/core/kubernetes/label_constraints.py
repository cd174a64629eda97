"""Label constraints: the expressions of a selector combined by label, and labels whose value is not known yet."""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.types import LabelSelector, NodeRequirement, Requirement


class UnresolvedLabel(Struct, frozen=True, gc=False):
    """The values that a label may have. `sample` is its value in a simulated Pod.

    With `numbers` the value is `prefix` and one of these numbers, and each of them occurs; otherwise it matches
    `pattern`.
    """

    sample: str
    pattern: str = ""
    prefix: str = ""
    numbers: range | None = None

    def is_among(self, values: Sequence[str]) -> bool | None:
        """Return whether the value is one of `values`; None if that depends on the Pod."""
        if self.numbers is None:
            return None if any(re.fullmatch(self.pattern, value) for value in values) else False
        found = {number for value in values if (number := self._parse_number(value)) in self.numbers}
        return (True if len(found) == len(self.numbers) else None) if found else False

    def _parse_number(self, value: str) -> int | None:
        digits = value.removeprefix(self.prefix)
        is_one = value.startswith(self.prefix) and re.fullmatch(r"0|[1-9][0-9]{0,9}", digits)
        return int(digits) if is_one else None


UnresolvedLabels = Mapping[str, UnresolvedLabel]
RESOLVED: UnresolvedLabels = {}


_INT64 = 2**63


class Constraint(Struct, frozen=True, gc=False):
    """All requirements on one label. `allowed`: None for any value. Gt and Lt (nodes only) require a whole number."""

    present: bool = False
    absent: bool = False
    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()
    above: int | None = None
    below: int | None = None

    def narrow(self, operator: str, values: frozenset[str]) -> "Constraint":
        """Return the constraint with one more expression. An unknown operator is ignored."""
        if operator == "In" and self is ANYTHING:  # most labels occur in one expression
            return Constraint(present=True, allowed=values)
        match operator:
            case "In":
                found = replace(self, present=True, allowed=values if self.allowed is None else self.allowed & values)
            case "NotIn":
                found = replace(self, denied=self.denied | values)
            case "Exists":
                found = replace(self, present=True)
            case "DoesNotExist":
                found = replace(self, absent=True)
            case "Gt" | "Lt":
                found = self._add_bound(operator, values)
            case _:
                return self
        if found.present and found.absent:
            return NOTHING
        if found.allowed is None:
            # An absent label has none of the denied values.
            return replace(found, denied=frozenset()) if found.absent and found.denied else found
        # With listed values, the remaining values are the whole constraint.
        left = frozenset(value for value in found.allowed if not found.rules_out(value))
        return Constraint(found.present, found.absent, left)

    def _add_bound(self, operator: str, values: frozenset[str]) -> "Constraint":
        bound = parse_integer(next(iter(values))) if len(values) == 1 else None
        if bound is None:  # without a number the scheduler matches no node
            return replace(self, present=True, allowed=frozenset())
        if operator == "Gt":
            return replace(self, present=True, above=bound if self.above is None else max(self.above, bound))
        return replace(self, present=True, below=bound if self.below is None else min(self.below, bound))

    def rules_out(self, value: str) -> bool:
        """Return whether a label of this value violates the constraint."""
        if value in self.denied or (self.allowed is not None and value not in self.allowed):
            return True
        if self.above is None and self.below is None:
            return False
        number = parse_integer(value)
        return (
            number is None
            or (self.above is not None and number <= self.above)
            or (self.below is not None and number >= self.below)
        )

    @property
    def is_impossible(self) -> bool:
        if self.present and self.absent:
            return True
        if self.allowed is not None:
            return not self.allowed
        return self.above is not None and self.below is not None and self.below - self.above < 2  # noqa: PLR2004  nothing lies between neighbours

    def implies(self, other: "Constraint") -> bool:
        """Return whether everything that satisfies this constraint satisfies `other`."""
        if (other.present and not self.present) or (other.absent and not self.absent):
            return False
        if self.allowed is not None:
            return not any(other.rules_out(value) for value in self.allowed)
        if other.allowed is not None:
            return False
        if other.above is not None and (self.above is None or self.above < other.above):
            return False
        if other.below is not None and (self.below is None or self.below > other.below):
            return False
        return self.absent or all(self.rules_out(value) for value in other.denied)


def parse_integer(text: str) -> int | None:
    """Parse a whole number as Go's ParseInt does; None if it would fail."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    significant = digits.lstrip("0")
    if not (digits.isascii() and digits.isdecimal()) or len(significant) > len(str(_INT64)):
        return None
    number = int(f"{'-' if text[0] == '-' else ''}{significant or 0}")  # zeros count against int's limit of digits
    return number if -_INT64 <= number < _INT64 else None


Constraints = dict[str, Constraint]
ANYTHING = Constraint()
NOTHING = Constraint(present=True, absent=True, allowed=frozenset())
"""No label is both present and absent, whatever else is required of it."""


def combine_expressions(expressions: Iterable[Requirement | NodeRequirement]) -> Constraints:
    """Return the combined constraints of ANDed expressions, by label."""
    by_key: dict[str, list[Requirement | NodeRequirement]] = {}
    for expression in expressions:
        by_key.setdefault(expression.key, []).append(expression)
    return {key: _combine_label(group) for key, group in by_key.items()}


def _combine_label(expressions: Sequence[Requirement | NodeRequirement]) -> Constraint:
    """Combine the expressions on one label. A tenant may write any number of them, so value lists are joined first."""
    if len(expressions) == 1:
        return ANYTHING.narrow(expressions[0].operator, frozenset(expressions[0].values or ()))
    found, denied, allowed = ANYTHING, set[str](), None
    for expression in expressions:
        values = frozenset(expression.values or ())
        if expression.operator == "NotIn":
            denied |= values
        elif expression.operator == "In":
            allowed = values if allowed is None else allowed & values
        else:
            found = found.narrow(expression.operator, values)
    if denied:
        found = found.narrow("NotIn", frozenset(denied))
    return found if allowed is None else found.narrow("In", allowed)


def build_constraints(selector: LabelSelector | None) -> Constraints:
    """Return the constraints of a selector, by label."""
    if selector is None:
        return {}
    exact = (Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
    return combine_expressions((*exact, *(selector.match_expressions or ())))


def imply(narrow: Constraints, wide: Constraints) -> bool:
    """Return whether `wide` selects everything that `narrow` selects."""
    return all(narrow.get(key, ANYTHING).implies(constraint) for key, constraint in wide.items())


def list_covering_patterns(name: str) -> list[str]:
    """Return every pattern that covers `name`, widest first. `name` is a name, `START*` or `*END`."""
    start, star, end = name.partition("*")
    end = end if star else start
    prefixes = [f"{start[:length]}*" for length in range(1, len(start) + 1)]
    suffixes = [f"*{end[-length:]}" for length in range(1, len(end) + 1)]
    return [*prefixes, *suffixes, *([] if star else [name])]
