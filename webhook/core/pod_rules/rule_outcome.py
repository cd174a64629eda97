"""Outcome of one rule for one Pod."""

from enum import StrEnum
from typing import NamedTuple

from webhook.core.policy_fields.field_types import Mode


class RuleResult(StrEnum):
    """What a rule says of a Pod."""

    FULFILLED = "fulfilled"
    NOT_MEANT = "not for this Pod"
    """`when` does not hold."""
    UNKNOWN = "not judged"
    """A record of the Pod lacks what the rule reads."""
    VIOLATED = "violated"
    FAILED = "failed"
    """The rule cannot judge the Pod."""


class RuleOutcome(NamedTuple):
    """The result of one rule, with a text for people; `is_ignored`: it failed, and onError admits the Pod."""

    rule: str
    result: RuleResult
    mode: Mode
    text: str
    is_ignored: bool = False

    @property
    def is_finding(self) -> bool:
        return self.result is RuleResult.VIOLATED or self.result is RuleResult.FAILED
