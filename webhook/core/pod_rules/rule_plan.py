"""Rule plan: the rules of one service, compiled, and their judgement of a Pod."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from webhook.core.kubernetes.pod import Pod
from webhook.core.plain_text import escape_line
from webhook.core.pod_rules.cost import COST_MAX, estimate_cost
from webhook.core.pod_rules.environment import EvaluationError, Expression, ExpressionError, load_environment
from webhook.core.pod_rules.view import RuleSubject, list_fields
from webhook.core.policy_fields.field_types import Mode
from webhook.core.policy_fields.rules import OnError, Rule

_MESSAGE_CHARACTERS_MAX = 512
_EXPRESSIONS_MAX = 4096
RESULT_TYPES = {"when": "bool", "require": "bool", "message": "string"}


class RuleFinding(NamedTuple):
    """A rule that a Pod violates, or that cannot judge it; `is_ignored`: then the rule's onError admits the Pod."""

    rule: str
    mode: Mode
    text: str
    is_error: bool = False
    is_ignored: bool = False


class CompiledExpression(NamedTuple):
    expression: Expression
    cost: int


class CompiledRule(NamedTuple):
    """One rule, ready for reviews."""

    rule: Rule
    is_ignored: bool
    """Whether a Pod is admitted that the rule cannot judge."""
    when: Expression | None
    require: Expression
    message: Expression | None

    def judge(self, activation: Any) -> RuleFinding | None:
        """Return the finding about a Pod; None if the rule is fulfilled, or does not apply."""
        try:
            if (self.when is not None and not self.when.evaluate(activation)) or self.require.evaluate(activation):
                return None
        except EvaluationError as error:
            return self.fail(str(error))
        return RuleFinding(self.rule.name, self.rule.mode, f"rule {self.rule.name}: {self._explain(activation)}")

    def fail(self, reason: str) -> RuleFinding:
        """Return the finding about a Pod that the rule cannot judge."""
        text = f"rule {self.rule.name} cannot judge the Pod: {escape_line(reason)}"
        mode = Mode.AUDIT if self.is_ignored else self.rule.mode
        return RuleFinding(self.rule.name, mode, text, is_error=True, is_ignored=self.is_ignored)

    def _explain(self, activation: Any) -> str:
        if self.message is None:
            return "require is not fulfilled"
        try:
            return escape_line(self.message.evaluate(activation)[:_MESSAGE_CHARACTERS_MAX])
        except EvaluationError as error:
            return f"require is not fulfilled (message: {error})"


class RulePlan(NamedTuple):
    """The rules of a service that are not Disabled."""

    rules: tuple[CompiledRule, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule], *, ignores_errors: bool) -> "RulePlan":
        """Compile rules that have been checked. `ignores_errors`: what holds for a rule without onError."""
        enabled = (rule for rule in rules if rule.mode is not Mode.DISABLED)
        return cls(tuple(compile_rule(rule, ignores_errors=ignores_errors) for rule in enabled))

    def judge(self, pod: Pod, subject: RuleSubject) -> Iterator[RuleFinding]:
        """Yield the findings about a Pod."""
        try:
            activation = load_environment().activate(list_fields(pod, subject), subject)
        except (TypeError, ValueError) as error:
            yield from (rule.fail(str(error)) for rule in self.rules)
            return
        for rule in self.rules:
            found = rule.judge(activation)
            if found is not None:
                yield found


def compile_rule(rule: Rule, *, ignores_errors: bool) -> CompiledRule:
    """Compile one rule. ExpressionError, LibraryMissingError."""
    made = {
        field: None if text is None else compile_expression(text, RESULT_TYPES[field]).expression
        for field, text in list_expressions(rule)
    }
    is_ignored = ignores_errors if rule.on_error is None else rule.on_error is OnError.IGNORE
    require = made["require"]
    if require is None:
        raise LookupError("a rule without require")
    return CompiledRule(rule, is_ignored, made["when"], require, made["message"])


def list_expressions(rule: Rule) -> tuple[tuple[str, str | None], ...]:
    """Return the expressions of a rule by field."""
    return ("when", rule.when), ("require", rule.require), ("message", rule.message)


@lru_cache(_EXPRESSIONS_MAX)  # services inherit the rules of `defaults`, and policies those of the former one
def compile_expression(text: str, result: str) -> CompiledExpression:
    """Compile an expression and bound its cost. ExpressionError, LibraryMissingError."""
    expression = load_environment().compile(text, result)
    cost = estimate_cost(expression.checked)
    if cost > COST_MAX:
        raise ExpressionError(f"may cost {cost}, more than {COST_MAX}", "use fewer or shorter loops and patterns")
    return CompiledExpression(expression, cost)
