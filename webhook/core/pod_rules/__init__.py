"""Rules of a service in CEL: compiled and bounded when a policy is loaded, evaluated for each new Pod."""

from webhook.core.pod_rules.cost import COST_MAX
from webhook.core.pod_rules.environment import ExpressionError, LibraryMissingError
from webhook.core.pod_rules.rule_outcome import RuleOutcome, RuleResult
from webhook.core.pod_rules.rule_plan import RESULT_TYPES, RulePlan, compile_expression
from webhook.core.pod_rules.view import RuleSubject

__all__ = [
    "COST_MAX",
    "RESULT_TYPES",
    "ExpressionError",
    "LibraryMissingError",
    "RuleOutcome",
    "RulePlan",
    "RuleResult",
    "RuleSubject",
    "compile_expression",
]
