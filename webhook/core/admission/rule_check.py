"""Check of a Pod against a service's own rules, which read more of it than other checks do."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from webhook.core.admission.decision import Finding, StageNote
from webhook.core.admission.evaluation import Evaluation
from webhook.core.findings import Code
from webhook.core.kubernetes.review_objects import find_objects
from webhook.core.pod_rules import RuleOutcome, RuleResult, RuleSubject
from webhook.core.policy.model import Service


def check_rules(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Check the Pod of a review against the service's own rules."""
    if evaluation.body:
        return check_versions(evaluation, *find_objects(evaluation.body))
    request = evaluation.request
    return check_versions(
        evaluation, msgspec.json.encode(request.pod), msgspec.json.encode(request.old_pod), is_record=True
    )


def check_versions(
    evaluation: Evaluation, pod: bytes | Raw, old: bytes | Raw = b"null", *, is_record: bool = False
) -> tuple[Finding, ...]:
    """Check a Pod in JSON against the service's own rules; an updated one may violate what `old` did."""
    request, service = evaluation.request, evaluation.owner
    if service.modes.is_all_disabled():
        return ()
    subject = RuleSubject(request.namespace, service.name, request.user, request.owner_kind or "")
    outcomes = service.rule_plan.judge(pod, subject, is_record=is_record)
    if request.operation != "CREATE":
        before = service.rule_plan.judge(old, subject, is_record=is_record)
        outcomes = [
            outcome
            for outcome, former in zip(outcomes, before, strict=True)
            if not (outcome.is_finding and former.result in {outcome.result, RuleResult.VIOLATED})
        ]
    evaluation.steps += tuple(StageNote("check", outcome.text) for outcome in outcomes if not outcome.is_finding)
    return _build_findings(outcomes, service)


def _build_findings(outcomes: Iterable[RuleOutcome], service: Service) -> tuple[Finding, ...]:
    """Return the findings about a Pod that some of a service's own rules refuse, or cannot judge."""
    return tuple(
        Finding(
            Code.RULE_FAILED if outcome.result is RuleResult.FAILED else Code.RULE_VIOLATED,
            "rules",
            outcome.mode,
            f"service {service.name}: {outcome.text}",
            f"rules[{outcome.rule}]",
            outcome.is_ignored,
        )
        for outcome in outcomes
        if outcome.is_finding
    )
