"""Check: a code, a title that holds without findings, the facts it reads, and the function that judges them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.repair_command import add_context


class Severity(StrEnum):
    """An error keeps Podgate from doing what the policy says; a warning may."""

    ERROR = "error"
    WARNING = "warning"


class Observation(NamedTuple):
    """A finding of a check: an object, its field and value, the remedy, and the command that applies it, if any."""

    object: str
    field: str
    value: str
    remedy: str
    command: str = ""
    is_mild: bool = False
    """A warning, even if other findings of its check are errors."""


Judge = Callable[[ClusterFacts], Iterable[Observation]]
Absence = Callable[[ClusterFacts], str]
"""Explains why an installation has nothing for a check to judge, "" if it has something."""


def nothing_absent(_: ClusterFacts) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """One judgement. `needs`: the facts that it reads, by their attribute of `ClusterFacts`."""

    code: str
    title: str
    severity: Severity
    needs: tuple[str, ...]
    judge: Judge
    absence: Absence = nothing_absent


@dataclass(frozen=True, slots=True)
class Section:
    """Checks of one part of an installation, in the order of the output."""

    title: str
    checks: list[ClusterCheck] = field(default_factory=list)
    absence: Absence = nothing_absent
    """The `absence` of the section's checks, unless a check has its own."""

    def check(
        self,
        code: str,
        title: str,
        *needs: str,
        severity: Severity = Severity.ERROR,
        absence: Absence | None = None,
    ) -> Callable[[Judge], Judge]:
        """Register a function as a check of this section."""

        def register(judge: Judge) -> Judge:
            self.checks.append(ClusterCheck(code, title, severity, needs, judge, absence or self.absence))
            return judge

        return register


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check: its findings, why it was not possible, or why there is nothing to judge."""

    check: ClusterCheck
    findings: tuple[Observation, ...] = ()
    not_checked: str = ""
    not_applicable: str = ""

    @property
    def severity(self) -> Severity:
        """The severity of its worst finding."""
        return min(map(self.rate, self.findings), key=list(Severity).index, default=self.check.severity)

    def rate(self, seen: Observation) -> Severity:
        """Return the severity of one of its findings."""
        return Severity.WARNING if seen.is_mild else self.check.severity


def run_check(check: ClusterCheck, facts: ClusterFacts) -> CheckOutcome:
    """Return the outcome of one check; it is not judged if a fact that it needs could not be read."""
    reasons = dict.fromkeys(filter(None, map(facts.explain_unknown, check.needs)))
    if reasons:
        return CheckOutcome(check, not_checked="; ".join(reasons))
    absent = check.absence(facts)
    if absent:
        return CheckOutcome(check, not_applicable=absent)
    return CheckOutcome(
        check, tuple(_add_context_to_command(observation, facts.context) for observation in check.judge(facts))
    )


def _add_context_to_command(seen: Observation, context: str) -> Observation:
    return seen._replace(command=add_context(seen.command, context))
