"""Rule plan: the rules of one service, compiled, and their judgement of a Pod."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Raw

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.plain_text import escape_line
from webhook.core.pod_rules.cost import COST_MAX, estimate_cost
from webhook.core.pod_rules.environment import EvaluationError, Expression, ExpressionError, load_environment
from webhook.core.pod_rules.expression_tree import ExpressionTree
from webhook.core.pod_rules.fields import Field, list_unrecorded
from webhook.core.pod_rules.rule_outcome import RuleOutcome, RuleResult
from webhook.core.pod_rules.view import RuleSubject, ViewReader
from webhook.core.policy_fields.field_types import Mode
from webhook.core.policy_fields.rules import OnError, Rule

_MESSAGE_CHARACTERS_MAX = 512
_EXPRESSIONS_MAX = 4096
_READERS_MAX = 1024
RESULT_TYPES = {"when": "bool", "require": "bool", "message": "string"}


class CompiledExpression(NamedTuple):
    expression: Expression
    cost: int
    reads: frozenset[Field]


class CompiledRule(NamedTuple):
    """One rule, ready for reviews."""

    rule: Rule
    is_ignored: bool
    """Whether a Pod is admitted that the rule cannot judge."""
    when: Expression | None
    require: Expression
    message: Expression | None
    reads: frozenset[Field]
    unrecorded: tuple[str, ...]
    """What it reads that records of Pods do not keep."""

    def judge(self, activation: Any, excess: Mapping[Field, str]) -> RuleOutcome:
        """Judge a Pod. `excess`: why a rule that reads a field cannot."""
        if excess and not self.reads.isdisjoint(excess):
            return self.fail(next(reason for field, reason in excess.items() if field in self.reads))
        try:
            if self.when is not None and not self.when.evaluate(activation):
                return self._conclude(RuleResult.NOT_MEANT)
            if self.require.evaluate(activation):
                return self._conclude(RuleResult.FULFILLED)
        except EvaluationError as error:
            return self.fail(str(error))
        text = f"rule {self.rule.name}: {self._explain(activation)}"
        return RuleOutcome(self.rule.name, RuleResult.VIOLATED, self.rule.mode, text)

    def fail(self, reason: str) -> RuleOutcome:
        """Return the outcome for a Pod that the rule cannot judge."""
        text = f"rule {self.rule.name} cannot judge the Pod: {escape_line(reason)}"
        mode = Mode.AUDIT if self.is_ignored else self.rule.mode
        return RuleOutcome(self.rule.name, RuleResult.FAILED, mode, text, self.is_ignored)

    def pass_over(self) -> RuleOutcome:
        """Return the outcome for a Pod of which only a record is known."""
        return self._conclude(RuleResult.UNKNOWN, f": records do not keep {', '.join(self.unrecorded)}")

    def _conclude(self, result: RuleResult, more: str = "") -> RuleOutcome:
        return RuleOutcome(self.rule.name, result, self.rule.mode, f"rule {self.rule.name}: {result}{more}")

    def _explain(self, activation: Any) -> str:
        if self.message is None:
            return "require is not fulfilled"
        try:
            return escape_line(self.message.evaluate(activation)[:_MESSAGE_CHARACTERS_MAX])
        except EvaluationError as error:
            return f"require is not fulfilled (message: {error})"


class RulePlan(NamedTuple):
    """The rules of a service that are not Disabled, and what reads a Pod for them."""

    rules: tuple[CompiledRule, ...] = ()
    reader: ViewReader | None = None

    @classmethod
    def compile(cls, rules: Sequence[Rule], *, ignores_errors: bool) -> "RulePlan":
        """Compile rules that have been checked. `ignores_errors`: what holds for a rule without onError."""
        compiled = tuple(
            compile_rule(rule, ignores_errors=ignores_errors) for rule in rules if rule.mode is not Mode.DISABLED
        )
        if not compiled:
            return cls()
        return cls(compiled, _make_reader(frozenset[Field]().union(*(rule.reads for rule in compiled))))

    def judge(self, pod: bytes | Raw, subject: RuleSubject, *, is_record: bool = False) -> list[RuleOutcome]:
        """Judge a Pod in JSON. `is_record`: it has only what records of Pods keep."""
        if self.reader is None:
            return []
        try:
            found = self.reader.read(pod, subject)
            activation = load_environment().activate(found.values, subject)
        except (TypeError, ValueError, *UNREADABLE_JSON) as error:
            return [rule.fail(str(error)) for rule in self.rules]
        return [
            rule.pass_over() if is_record and rule.unrecorded else rule.judge(activation, found.excess)
            for rule in self.rules
        ]


def compile_rule(rule: Rule, *, ignores_errors: bool) -> CompiledRule:
    """Compile one rule. ExpressionError, LibraryMissingError."""
    made = {
        field: compile_expression(text, RESULT_TYPES[field])
        for field, text in list_expressions(rule)
        if text is not None
    }
    when, message = made.get("when"), made.get("message")
    reads = frozenset[Field]().union(*(compiled.reads for compiled in made.values()))
    return CompiledRule(
        rule,
        ignores_errors if rule.on_error is None else rule.on_error is OnError.IGNORE,
        when and when.expression,
        made["require"].expression,
        message and message.expression,
        reads,
        tuple(list_unrecorded(reads)),
    )


def list_expressions(rule: Rule) -> tuple[tuple[str, str | None], ...]:
    """Return the expressions of a rule by field."""
    return ("when", rule.when), ("require", rule.require), ("message", rule.message)


@lru_cache(_EXPRESSIONS_MAX)  # services inherit the rules of `defaults`, and policies those of the former one
def compile_expression(text: str, result: str) -> CompiledExpression:
    """Compile an expression and bound its cost. ExpressionError, LibraryMissingError."""
    expression = load_environment().compile(text, result)
    form = ExpressionTree(expression.checked)
    cost = estimate_cost(form)
    if cost > COST_MAX:
        raise ExpressionError(f"may cost {cost}, more than {COST_MAX}", "use fewer or shorter loops and patterns")
    return CompiledExpression(expression, cost, form.list_reads())


@lru_cache(_READERS_MAX)
def _make_reader(reads: frozenset[Field]) -> ViewReader:
    return ViewReader(reads)
