"""Stages "rewrite", "breaker" and "check". Each reads an evaluation, adds its findings, and may decide it."""

from webhook.core.admission import denials, enforcement_preview, mutation, rewrite_warnings, validation
from webhook.core.admission.charging import event_source, unreadable_resources
from webhook.core.admission.decision import Finding, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.breaker import BreakerView, State, may_probe_early
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec import Mode
from webhook.core.quota import Receipt


def rewrite(evaluation: Evaluation, view: BreakerView | None = None) -> None:
    """Make the patch of a new Pod; existing Pods are never rewritten. `view`: the known state of the breaker."""
    if evaluation.request.operation != "CREATE":
        return evaluation.note("rewrite", "only new Pods are rewritten")
    if evaluation.request.excess is not None:
        return evaluation.note("rewrite", evaluation.request.excess.text)
    if view is not None:
        _degrade(evaluation, view)
    try:
        evaluation.patch = mutation.rewrite(
            evaluation.pod, evaluation.owner, evaluation.compiled.hash, degraded=bool(evaluation.degraded)
        )
        qos = mutation.qos_change(evaluation.pod, evaluation.owner) if evaluation.patch else None
        evaluation.overwritten = rewrite_warnings.warnings(evaluation.pod, evaluation.owner, evaluation.patch)
    except ValueError as error:
        raise unreadable_resources(error) from None
    if qos is not None:
        evaluation.qos_change = f"{qos[0]} to {qos[1]}"
        evaluation.note("rewrite", f"QoS class: {evaluation.qos_change}")
    return evaluation.note(
        "rewrite", ", ".join(operation.path for operation in evaluation.patch) or "nothing to change"
    )


def _degrade(evaluation: Evaluation, view: BreakerView) -> None:
    """If the breaker is open and degrades, drop the preferred terms of the placement."""
    service, breaker = evaluation.owner, evaluation.plan.breaker
    prefers = service.degraded_placement_plan is not service.placement_plan
    if breaker is None or not breaker.degrades or not prefers or service.modes.placement is not Mode.ENFORCE:
        return
    if not view.state.is_open:
        return
    reason = f"breaker {view.state}"
    if service.modes.breaker is Mode.ENFORCE:
        evaluation.degraded = reason
        evaluation.note("rewrite", f"{reason}: preferred terms are left out")
    else:
        evaluation.would_degrade = True
        evaluation.note("rewrite", f"{service.modes.breaker}: {reason}: preferred terms would be left out")


def deny_if_open(evaluation: Evaluation, view: BreakerView | None, now_us: int) -> None:
    """Deny if the breaker is known to be open, without asking the store: the cheapest denial."""
    service, plan = evaluation.owner, evaluation.plan.breaker
    if view is None or plan is None or evaluation.request.operation != "CREATE":
        return
    evaluation.note("breaker", view.state)
    if not view.state.is_open or service.modes.breaker is not Mode.ENFORCE or plan.degrades:
        return
    if view.state is State.OPEN and view.early and may_probe_early(event_source(evaluation), view.failed, view.early):
        return  # a probe slot may be free: only the store knows
    evaluation.add_findings("breaker", (denials.breaker_finding(service, view),))
    evaluation.receipt = Receipt(now_us, breaker=view)


def check(evaluation: Evaluation) -> None:
    """Check the Pod's fields: a new Pod against the policy, an updated one against its old version."""
    request, service = evaluation.request, evaluation.owner
    if request.operation == "UPDATE" and request.old_pod is None:
        raise BadReviewError("AdmissionReview.request.oldObject is missing: UPDATE of pods needs it")
    if request.excess is not None:
        evaluation.add_findings("check", validation.check_size(service, request.excess))
        evaluation.decide(evaluation.verdict or Verdict.ADMIT, "check", "too large: not checked further, not charged")
        return
    try:
        if request.old_pod is None or request.operation == "CREATE":
            findings = check_new(evaluation, evaluation.pod, hash_known=evaluation.hash_known)
        else:
            findings = validation.guard(
                request.old_pod, evaluation.pod, service, resized=request.sub_resource == "resize"
            )
    except ValueError as error:
        raise unreadable_resources(error) from None
    evaluation.add_findings("check", findings)
    if not findings and not evaluation.would_write:
        evaluation.note("check", "fulfilled")
    if evaluation.verdict is None and request.operation == "UPDATE" and not request.sub_resource:
        evaluation.decide(Verdict.ADMIT, "check", "an UPDATE is not charged")


def check_new(evaluation: Evaluation, pod: Pod, *, hash_known: bool) -> tuple[Finding, ...]:
    """Return the findings about a new Pod; record what Enforce would only write into it."""
    preview = enforcement_preview.enforced_pod(pod, evaluation.owner)
    findings = validation.check(preview.pod, evaluation.owner, hash_known=hash_known)
    evaluation.would_write = preview.admitted(findings)
    for write in evaluation.would_write:
        evaluation.note("check", f"{write.mode}: {write}")
    return findings
