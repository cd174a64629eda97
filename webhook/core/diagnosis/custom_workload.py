"""Objects of custom kinds: their Pod templates under the policy in force, and why they have no Pods."""

from collections.abc import Mapping
from typing import Any

from webhook.core.admission import makers, workloads
from webhook.core.admission.decision import Half, Verdict, select_enforced
from webhook.core.admission.evaluation import NO_POD, Evaluation
from webhook.core.admission.review import CustomMaker, Request, WorkloadRequest
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis.facts import CustomFacts, Surroundings, WorkloadFacts
from webhook.core.diagnosis.pod_diagnosis import choose_denial_token
from webhook.core.diagnosis.report import AdmissionReport, Fate, Report, ReportSubject, TemplateReport
from webhook.core.policy.custom_workloads import find_template_paths
from webhook.core.workloads.workload import read_mapping

_SUSPENDED_BY = (("suspend",), ("runPolicy", "suspend"))
"""Fields of `spec` that hold all Pods of an object, as Kueue uses them."""


def judge_templates(custom: CustomFacts, namespace: str, around: Surroundings) -> tuple[TemplateReport, ...]:
    """Return how the policy in force judges each Pod template of an object; () if it does not know where they are."""
    policy = around.in_force
    if policy is None:
        return ()
    kind, name = custom.kind, str(read_mapping(custom.document.get("metadata")).get("name"))
    workload = WorkloadRequest(
        f"{kind.shown}/{name}", "CREATE", "", maker=CustomMaker(kind.group, kind.kind, custom.document)
    )
    asked = Request(
        uid="",
        operation="CREATE",
        resource=kind.resource,
        sub_resource="",
        namespace=namespace,
        user="",
        dry_run=False,
        pod=None,
        old_pod=None,
        workload=workload,
    )
    whole = Evaluation(Half.VALIDATE, asked, policy, NO_POD)
    return tuple(
        _judge_template(place, part, around.namespace_labels)
        for place, part in makers.begin_reviews(
            whole, makers.read_templates(whole), lambda _half, _request: (policy, True)
        )
    )


def _judge_template(place: str, part: Evaluation, namespace_labels: Mapping[str, str]) -> TemplateReport:
    workloads.exempt(part)
    if part.verdict is None:
        workloads.find_owner(part, namespace_labels)
    if part.verdict is None:
        workloads.check(part)
    service = "" if part.service is None else part.service.name
    denials = select_enforced(part.findings)
    shown = denials or part.findings
    return TemplateReport(
        place,
        part.verdict or Verdict.ADMIT,
        service,
        tuple(str(finding.code) for finding in shown),
        "; ".join(str(finding) for finding in shown),
    )


def explain_custom_absence(
    facts: WorkloadFacts, custom: CustomFacts, around: Surroundings, subject: ReportSubject
) -> Report:
    """Return the report on an object that has no Pods, and of which no refusal is known."""
    unread = dict(around.unread)
    field = _find_suspension(custom.document)
    if field:
        remedy = f"set {field} to false, unless a queue such as Kueue resumes it"
        return Report(Fate.IDLE, f"suspended ({field}): no Pods run", subject, remedy, unread=unread)
    if why := around.explain_unread("pods"):
        text = f"its Pods cannot be read, so why Pods are missing cannot be told: {why}"
        return Report(Fate.UNKNOWN, text, subject, unread=unread)
    templates = judge_templates(custom, facts.namespace, around)
    denied = next((template for template in templates if template.decision == Verdict.DENY), None)
    if denied is not None:
        return _report_denied(denied, around.in_force, subject, unread)
    text = "it has no Pods, and nothing says why"
    if templates:
        return Report(Fate.UNKNOWN, f"{text}: the policy refuses none of its templates", subject, unread=unread)
    policy = around.in_force
    if policy is None or find_template_paths(policy.policy, custom.kind.group, custom.kind.kind):
        return Report(Fate.UNKNOWN, text, subject, unread=unread)
    remedy = f"say where a {custom.kind.kind} has Pod templates: workloads of the policy"
    return Report(Fate.UNKNOWN, f"{text}; Podgate does not know this kind", subject, remedy, unread=unread)


def _report_denied(
    template: TemplateReport, policy: CompiledPolicy | None, subject: ReportSubject, unread: dict[str, str]
) -> Report:
    admission = AdmissionReport(
        "policy",
        Verdict.DENY,
        service=template.service,
        policy="" if policy is None else policy.hash,
        codes=template.codes,
        message=template.message,
    )
    text = f"it has no Pods yet; those of {template.place} will be denied: {template.message}"
    return Report(choose_denial_token(template.codes), text, subject, admission=admission, unread=unread)


def _find_suspension(document: Mapping[str, Any]) -> str:
    """Return the field that suspends an object, "" if none does."""
    for path in _SUSPENDED_BY:
        found: Any = document.get("spec")
        for key in path:
            found = read_mapping(found).get(key)
        if found is True:
            return ".".join(("spec", *path))
    return ""
