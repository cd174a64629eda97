"""Summary of a whole review: objects counted by verdict, and the resulting exit code."""

from collections import Counter

import click

from webhook.core.admission.decision import Decision, Verdict
from webhook.core.plain_text import escape_lines
from webhook.errors import UserError

DENIED = 3
BAD_INPUT = 2


class ReviewSummary:
    """Counts objects by verdict, and prints each error once, at once."""

    def __init__(self) -> None:
        self._verdicts: Counter[Verdict] = Counter()
        self._is_denied = False
        self._denied_in_any_case = 0
        self._not_handled = 0
        self._read = 0
        self._errors = 0
        self._printed = set[str]()

    def count_decision(self, decision: Decision) -> None:
        self._verdicts[decision.verdict] += 1
        self._is_denied |= decision.pods_allowed is False
        self._denied_in_any_case += decision.verdict is Verdict.DEPENDS and decision.pods_allowed is False

    def count_namespace(self) -> None:
        """Count a Namespace, which is only read for its labels."""
        self._read += 1

    def count_not_handled(self) -> None:
        self._not_handled += 1

    def report_error(self, error: UserError) -> None:
        """Count an error, and print it once, in the command line's usual form."""
        self._errors += 1
        line = f"error: {error}" + (f": {error.remedy}" if error.remedy else "")
        if line not in self._printed:
            self._printed.add(line)
            click.echo(escape_lines(line), err=True)

    @property
    def exit_code(self) -> int:
        return BAD_INPUT if self._errors else DENIED if self._is_denied else 0

    def __str__(self) -> str:
        """One line; "" if the input had only errors."""
        if not self._verdicts and not self._not_handled and not self._read:
            return ""
        total = self._verdicts.total()
        verdicts = ", ".join(f"{verdict} {self._verdicts[verdict]}" for verdict in Verdict if self._verdicts[verdict])
        if self._denied_in_any_case:  # the last of the verdicts
            verdicts += f" ({self._denied_in_any_case} denied in any case)"
        parts = [f"{total} reviewed" + (f": {verdicts}" if verdicts else "")]
        parts += [f"{self._not_handled} not handled"] * bool(self._not_handled)
        parts += [f"{self._errors} in error"] * bool(self._errors)
        return "; ".join(parts)
