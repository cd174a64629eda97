"""Rules of `rules`: the checks in CEL that a service has of its own."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.pod_rules import (
    COST_MAX,
    RESULT_TYPES,
    ExpressionError,
    LibraryMissingError,
    RulePlan,
    RuleResult,
    RuleSubject,
    compile_expression,
)
from webhook.core.policy_fields import RULE_BYTES_MAX, Mode, Rule
from webhook.core.proof.corpus import CORPUS

_SUBJECT = RuleSubject("sample", "sample", "sample")
_EXTRA = "pip install 'podgate[cel]'"


def rule_names_are_unique(service: DocumentPart) -> Iterator[Problem]:
    """`rules[].name`: unique in the service. Refuse a repeated name."""
    first: dict[str, DocumentPart] = {}
    for name in service.select("rules", "*", "name"):
        text = name.read(str)
        if text in first:
            yield name.report(f"the name is already used in line {first[text].node.line}", "give each a unique name")
        first.setdefault(text, name)


def expressions_are_valid(service: DocumentPart) -> Iterator[Problem]:
    """`rules[]`: expressions of the right type, at most 2 KiB each rule, with a bounded cost together.

    Refuse rules without the library, and all else.
    """
    costs = 0
    for rule in service.select("rules", "*"):
        expressions = [rule.get_field(name) for name in RESULT_TYPES]
        size_bytes = sum(len(part.read(str).encode()) for part in expressions if part is not None)
        if size_bytes > RULE_BYTES_MAX:
            reason = f"its expressions have {size_bytes} bytes, more than {RULE_BYTES_MAX}"
            yield rule.report_field(reason, "split the rule, or shorten it")
            return
        for part, result in zip(expressions, RESULT_TYPES.values(), strict=True):
            try:
                costs += 0 if part is None else compile_expression(part.read(str), result).cost
            except LibraryMissingError:
                rules = service.get_field("rules")
                if rules is not None:
                    reason = "rules need the CEL library, which is not installed"
                    yield rules.report_field(reason, f"install it ({_EXTRA}), or remove the rules")
                return
            except ExpressionError as error:
                if part is not None:
                    yield _report(part, error)
    rules = service.get_field("rules")
    if costs > COST_MAX and rules is not None:
        yield rules.report_field(
            f"the rules together may cost {costs}, more than {COST_MAX}", "use fewer or shorter loops and patterns"
        )


def _report(part: DocumentPart, error: ExpressionError) -> Problem:
    """Return the problem at its place in the document; within a folded text only the place in it is known."""
    if not error.line:
        return part.report(error.reason, error.remedy)
    found = part.report_within(error.line, error.column, error.reason, error.remedy)
    return found or part.report(f"at {error.line}:{error.column} of the expression: {error.reason}", error.remedy)


def rules_can_judge(service: DocumentPart) -> Iterator[Problem]:
    """`rules[]`: warn about a rule that cannot judge some Pod of the corpus, as of an absent label."""
    rules = [
        (part, rule) for part in service.select("rules", "*") if (rule := part.read(Rule)).mode is not Mode.DISABLED
    ]
    plan = RulePlan.compile([rule for _, rule in rules], ignores_errors=False)
    failed: dict[int, str] = {}
    for sample in CORPUS if rules else ():
        for number, outcome in enumerate(plan.judge(sample.raw, _SUBJECT)):
            if outcome.result is RuleResult.FAILED:
                failed.setdefault(number, f"cannot judge {sample.name}: {outcome.text.partition(': ')[2]}")
    remedy = 'ask first, as in pod.labels[?"tier"].orValue("") or has(pod.priority)'
    yield from (rules[number][0].report_field(reason, remedy) for number, reason in failed.items())
