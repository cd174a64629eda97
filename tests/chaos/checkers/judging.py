"""What a checker says of a history: how many facts it has judged under which fault, and which of them are wrong."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from tests.chaos.checkers.faults import NO_FAULT, Faults
from tests.chaos.checkers.log_lines import format_moment


class Violation(Struct, frozen=True):
    """A fact that must not be. `of` is the object, `field` what of it, `value` what was found."""

    checker: str
    of: str
    field: str
    value: str
    expected: str
    at: float
    fault: str

    def __str__(self) -> str:
        moment = f"at {format_moment(self.at)}" if self.at else "in the end"
        fact = f"{self.of}: {self.field}: {self.value}, expected {self.expected}"
        return f"{self.checker}: {fact}; {moment}; {self.fault}"


@dataclass
class Judge:
    """Collects what one checker finds."""

    checker: str
    faults: Faults
    facts: Counter[str] = field(default_factory=Counter)
    """How many were judged, by the kind of fault that was active; one fact counts for each of them."""
    violations: list[Violation] = field(default_factory=list)

    def expect(
        self, *, holds: bool, of: str, field: str, value: Any, expected: Any, at: float, since: float = 0
    ) -> bool:
        """Judge one fact of a moment, or of the time from `since` on; return whether it holds."""
        begin = since or at
        kinds = {span.kind for span in self.faults.list_active(begin, at)} or {NO_FAULT}
        self.facts.update(kinds)
        if not holds:
            fault = self.faults.describe(begin, at)
            self.violations.append(Violation(self.checker, of, field, str(value), str(expected), at, fault))
        return holds

    @property
    def count(self) -> int:
        """How many facts were judged, each counted once for each fault that was active."""
        return sum(self.facts.values())
