"""Findings: violations of a policy by a Pod's fields, and their stable codes. They do not depend on modes."""

from enum import StrEnum
from typing import NamedTuple

_VALUE_CHARACTERS_MAX = 80
_TEXT_CHARACTERS_MAX, _TEXT_END_CHARACTERS = 2_000, 400


class Code(StrEnum):
    """The stable first word of every denial and warning; scripts may rely on it."""

    UNMATCHED = "Unmatched"
    MUTATION_MISSING = "MutationMissing"
    PLACEMENT_CONFLICT = "PlacementConflict"
    PLACEMENT_UNFULFILLED = "PlacementUnfulfilled"
    PLACEMENT_CONTRADICTION = "PlacementContradiction"
    PLACEMENT_NOT_ALLOWED = "PlacementNotAllowed"
    NODE_NAME_SET = "NodeNameSet"
    RESOURCES_OUTSIDE = "ResourcesOutside"
    RESOURCES_UNFULFILLED = "ResourcesUnfulfilled"
    REWRITTEN = "Rewritten"
    WOULD_REWRITE = "WouldRewrite"
    RULE_VIOLATED = "RuleViolated"
    RULE_FAILED = "RuleFailed"
    GROUP_INVALID = "GroupInvalid"
    SHARES_UNSAFE = "SharesUnsafe"
    POD_TOO_LARGE = "PodTooLarge"
    IMMUTABLE = "PodgateFieldImmutable"
    STORE_UNAVAILABLE = "StoreUnavailable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    QUEUE_FULL = "QueueFull"
    BREAKER_OPEN = "BreakerOpen"
    BREAKER_PROBING = "BreakerProbing"


class Violation(NamedTuple):
    """One violated requirement; `owed` identifies the requirement, whatever the Pod's actual value is."""

    code: Code
    field: str
    owed: str
    text: str


def shorten_value(value: str) -> str:
    """Return a value of a Pod as a finding quotes it: Kubernetes bounds some of them late, or not at all."""
    return value if len(value) <= _VALUE_CHARACTERS_MAX else f"{value[: _VALUE_CHARACTERS_MAX - 1]}…"


def shorten_text(text: str) -> str:
    """Return the text of a finding without its middle if it is long: its end has the remedy."""
    if len(text) <= _TEXT_CHARACTERS_MAX:
        return text
    return f"{text[: _TEXT_CHARACTERS_MAX - _TEXT_END_CHARACTERS]} … {text[-_TEXT_END_CHARACTERS:]}"
