"""Workload objects: warnings about the Pods of their templates. A workload object is never denied."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from webhook.core.admission import (
    exemptions,
    grouping,
    mutation,
    ownership,
    queueing,
    rewrite_warnings,
    rule_check,
    share_warnings,
    stages,
    validation,
)
from webhook.core.admission.decision import Decision, Dependence, Finding, Half, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.evaluation import conclude as conclude_review
from webhook.core.admission.review import Request, WorkloadRequest
from webhook.core.findings import Code, shorten_value
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec
from webhook.core.patch import Patch, apply
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy.model import Policy, Service
from webhook.core.policy_fields import Mode

_LABEL = f"metadata.labels[{SERVICE_LABEL}]"


def list_reviewed_kinds(policy: Policy) -> tuple[WorkloadKind, ...]:
    """Return the workload kinds to review: those whose controller's Pods are not all exempt."""
    empty = Pod(PodMetadata(), PodSpec())
    return tuple(
        source
        for source in WORKLOAD_KINDS
        if not exemptions.find_exemption(
            Request("", "CREATE", "pods", "", "", source.controller, dry_run=False, pod=empty, old_pod=None),
            empty,
            policy,
        )
    )


def exempt(evaluation: Evaluation) -> None:
    """Decide requests that no policy applies to. Templates are never rewritten: their Pods are."""
    if evaluation.half is Half.MUTATE:
        return evaluation.decide(Verdict.UNMATCHED, "own", "templates are not rewritten, their Pods are")
    return ownership.exempt(exemptions.PODGATE_USERS.__contains__, evaluation)


def find_owner(evaluation: Evaluation, namespace_labels: Mapping[str, str]) -> None:
    """Find the service that will own the Pods; the verdict is Depends if unresolved labels decide it."""
    namespace = evaluation.request.namespace
    labels = {NAME_LABEL: namespace, **namespace_labels}
    found = evaluation.compiled.matcher.find_possible_owners(
        namespace,
        labels,
        evaluation.pod.labels,
        _require_workload(evaluation).unresolved,
        _require_workload(evaluation).kind,
    )
    if len(found) == 1:
        return ownership.find_owner(evaluation, namespace_labels)
    by_service = []
    for owner in found:
        service = None if owner.service is None else evaluation.compiled.resolve_service(owner.service, labels)
        possible = Evaluation(evaluation.half, evaluation.request, evaluation.compiled, evaluation.pod, service=service)
        findings = ownership.check_ownerless(possible, labels) if owner.service is None else _find_objections(possible)
        by_service.append((owner.service, findings))
        dependence = Dependence(_name_of(owner.service), owner.labels, any(map(_denies, findings)))
        evaluation.depends_on = (*evaluation.depends_on, dependence)
    evaluation.findings = tuple(
        [finding for service, findings in by_service for finding in _build_advice(findings, evaluation, service)]
    )
    return evaluation.decide(Verdict.DEPENDS, "own", _describe_owners(evaluation))


def _name_of(service: Service | None) -> str | None:
    return None if service is None else service.name


def _describe_owners(evaluation: Evaluation) -> str:
    """Describe the possible owners: `service canary, depending on label pod-template-hash; else service web`."""
    *others, last = evaluation.depends_on
    texts = [f"service {dependence.service}, depending on {_format_labels(dependence.labels)}" for dependence in others]
    return "; else ".join((*texts, f"service {last.service}" if last.service else "no service"))


def _format_labels(keys: tuple[str, ...]) -> str:
    return f"label{'s' * (len(keys) > 1)} {', '.join(keys)}"


def check(evaluation: Evaluation) -> None:
    """Check the template's Pod after its rewrite: the remaining findings are the user's."""
    findings = _find_objections(evaluation)
    evaluation.add_findings("check", findings)
    if not findings:
        evaluation.note("check", "nothing in the template contradicts the policy")


def _find_objections(evaluation: Evaluation) -> tuple[Finding, ...]:
    service, pod, excess = evaluation.owner, evaluation.pod, evaluation.request.excess
    if excess is not None:
        return validation.check_size(service, excess)
    try:
        patch = mutation.rewrite(pod, service, evaluation.compiled.hash)
        evaluation.overwritten = rewrite_warnings.build_warnings(
            pod, service, patch, f"in Pods of {_require_workload(evaluation).name}: "
        )
        rewritten = mutation.apply_patch(pod, patch)
        found = stages.record_check(evaluation, stages.check_new(rewritten, service, hash_known=True))
        if service.rules:
            found += rule_check.check_versions(evaluation, _encode_rewritten(evaluation, patch))
        return (
            *_check_forged_label(pod, service),
            *found,
            *queueing.check_gate(evaluation),
            *grouping.check_group(evaluation),
            *(share_warnings.check_workload(evaluation) if service.variants else ()),
        )
    except ValueError as error:
        if _require_workload(evaluation).maker is not None:  # the API server does not check templates of custom kinds
            evaluation.note("check", f"the template's resources: {error}")
            return ()
        raise BadReviewError(f"AdmissionReview.request.object: the template's resources: {error}") from None


def _encode_rewritten(evaluation: Evaluation, patch: Patch) -> bytes:
    """Return the JSON of the template's Pod after its rewrite, with the fields that only rules read."""
    document = msgspec.json.decode(msgspec.json.encode(_require_workload(evaluation).document))
    apply(patch, document)
    return msgspec.json.encode(document)


def _check_forged_label(pod: Pod, service: Service) -> tuple[Finding, ...]:
    carried = pod.labels.get(SERVICE_LABEL, service.name)
    if carried == service.name or service.modes.is_all_disabled():
        return ()
    message = (
        f"service {service.name}: {_LABEL} is {shorten_value(carried)!r}:"
        f" leave the label out, Podgate writes {service.name!r}"
    )
    return (Finding(Code.IMMUTABLE, "placement", validation.find_own_mode(service), message, _LABEL),)


def advise(evaluation: Evaluation) -> None:
    """Turn findings into warnings: the object is always admitted."""
    if evaluation.verdict is not Verdict.DEPENDS:
        evaluation.findings = tuple(_build_advice(evaluation.findings, evaluation, evaluation.service))
    if evaluation.verdict is Verdict.DENY:
        evaluation.verdict = Verdict.UNMATCHED if evaluation.service is None else Verdict.ADMIT


def conclude(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the decision record of an evaluation, with its findings as warnings."""
    advise(evaluation)
    return conclude_advised(evaluation, client_id)


def conclude_advised(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the decision record of an evaluation whose findings are warnings."""
    workload, decision = _require_workload(evaluation), conclude_review(evaluation, client_id)
    if evaluation.depends_on:
        depends_on = {"depends-on": ",".join(map(str, evaluation.depends_on))}
        decision = replace(decision, depends_on=evaluation.depends_on, audit={**decision.audit, **depends_on})
    call = replace(decision.call, operation=workload.operation, user=workload.user)
    return replace(decision, workload=workload.name, call=call, pod="")


def _require_workload(evaluation: Evaluation) -> WorkloadRequest:
    if evaluation.request.workload is None:
        raise LookupError("this review is about a Pod")
    return evaluation.request.workload


def _build_advice(findings: Iterable[Finding], evaluation: Evaluation, service: Service | None) -> list[Finding]:
    """Return findings as warnings about Pods that do not exist yet; each names the workload.

    If other services may own the Pods, the warning states the condition under which `service` does.
    """
    workload, condition = _require_workload(evaluation).name, ""
    if evaluation.depends_on:
        # A service owns the Pods only if no earlier one in the list does.
        names = [dependence.service for dependence in evaluation.depends_on]
        earlier = evaluation.depends_on[: names.index(_name_of(service)) + 1]
        keys = dict.fromkeys(key for dependence in earlier for key in dependence.labels)
        whose = "no service" if service is None else f"service {service.name}"
        condition = f" if {whose} owns them, which depends on {_format_labels(tuple(keys))}"
    advice = []
    for finding in findings:
        if finding.mode not in {Mode.ENFORCE, Mode.WARN}:
            continue
        denied = f"Pods of {workload} will be denied{condition}"
        pods = denied if _denies(finding) else f"in Pods of {workload}{condition}"
        advice.append(replace(finding, mode=Mode.WARN, message=f"{pods}: {finding.message}"))
    return advice


def _denies(finding: Finding) -> bool:
    """Whether a finding will deny the Pods. A forged label will not: the rewrite replaces or removes it first."""
    return finding.mode is Mode.ENFORCE and finding.code is not Code.IMMUTABLE
