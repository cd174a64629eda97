"""The list `rules`: checks of new Pods that an operator writes in CEL, the Common Expression Language."""

from typing import Annotated

from msgspec import Meta, Struct

from webhook.core.kubernetes.types import format_of
from webhook.core.policy_fields.field_types import Choice, Mode, describe

RULES_MAX = 20
RULE_BYTES_MAX = 2048
"""Limit of the expressions of one rule together."""

Expression = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": RULE_BYTES_MAX})]


class OnError(Choice):
    """Deny treats a rule that cannot be evaluated as violated; Ignore only counts it."""

    DENY = "Deny"
    IGNORE = "Ignore"


class Rule(Struct, frozen=True, rename="camel"):
    """One rule: a Pod for which `when` holds must fulfil `require`."""

    name: Annotated[str, format_of("dns-label")]
    require: Annotated[Expression, describe("What must hold, in CEL: an expression of type bool.")]
    when: Annotated[Expression | None, describe("For which Pods, as require; all if absent.")] = None
    message: Annotated[Expression | None, describe("Text of a violation, in CEL, of type string.")] = None
    mode: Annotated[Mode, describe("What a violation does.")] = Mode.AUDIT
    on_error: Annotated[
        OnError | None, describe("For a Pod that the rule cannot judge; Deny with failureMode Closed, else Ignore.")
    ] = None


Rules = Annotated[tuple[Rule, ...], Meta(extra_json_schema={"maxItems": RULES_MAX})]
