"""Stages "rewrite", "breaker" and "check". Each reads an evaluation, adds its findings, and may decide it."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission import (
    denials,
    enforcement_preview,
    grouping,
    mutation,
    queueing,
    reinvocation,
    rewrite_warnings,
    rule_check,
    slots,
    validation,
)
from webhook.core.admission.charging import event_source, unreadable_resources
from webhook.core.admission.decision import Finding, StageNote, Verdict, WouldWrite
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.pod_results import get_or_compute
from webhook.core.breaker import BreakerView, State, may_probe_early
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_size import OversizedPod
from webhook.core.kubernetes.review_objects import has_images
from webhook.core.patch import Patch, PatchOperation
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.quota import Receipt


class Rewrite(Struct, frozen=True):
    """The patch of a new Pod, the warnings, the change of its QoS class, and notes of both.

    `is_repeated`: the Pod carries a policy's hash, perhaps of an earlier call. `reads_managers`: so it is, or another
    call may take values for Podgate's. A record does not hold what both need.
    """

    patch: Patch
    overwritten: tuple[str, ...]
    qos_change: str
    notes: tuple[StageNote, ...]
    is_repeated: bool
    reads_managers: bool


class Check(Struct, frozen=True):
    """The findings about a new Pod, and what Enforce would only write into it.

    `has_unshared`: the service also has rules of its own, groups or shares: these read more of the Pod.
    """

    findings: tuple[Finding, ...]
    would_write: tuple[WouldWrite, ...]
    has_unshared: bool = False


_FULFILLED = StageNote("check", "fulfilled")


def rewrite(evaluation: Evaluation, view: BreakerView | None = None) -> None:
    """Make the patch of a new Pod; existing Pods are never rewritten. `view`: the known state of the breaker."""
    if evaluation.request.operation != "CREATE":
        return evaluation.note("rewrite", "only new Pods are rewritten")
    if evaluation.request.excess is not None:
        evaluation.patch = mutation.disown(evaluation.pod, evaluation.owner)
        return evaluation.note("rewrite", evaluation.request.excess.text)
    if view is not None:
        _degrade(evaluation, view)
    found = get_or_compute(evaluation, _build_rewrite, (evaluation.deviation.degraded, evaluation.is_gated))
    if found.reads_managers and evaluation.body:
        found = (_rewrite_again if found.is_repeated else _mark_foreign)(evaluation, found)
    evaluation.patch = found.patch
    if evaluation.group is not None:
        evaluation.patch = Patch([*found.patch, *grouping.write_group(evaluation, evaluation.group)])
    if evaluation.slot is not None:
        evaluation.patch = evaluation.patch.extend(slots.write_slot(evaluation, evaluation.slot))
    evaluation.overwritten = found.overwritten
    evaluation.qos_change = found.qos_change
    evaluation.steps += found.notes
    return None


def _build_rewrite(evaluation: Evaluation, outdated: Sequence[PatchOperation] = ()) -> Rewrite:
    """Return the rewrite of the evaluated Pod, from which `outdated` has been removed."""
    pod, service = evaluation.pod, evaluation.owner
    try:
        degraded, is_gated = bool(evaluation.deviation.degraded), evaluation.is_gated
        patch = mutation.rewrite(pod, service, evaluation.compiled.hash, degraded=degraded, is_gated=is_gated)
        qos = mutation.find_qos_change(pod, service) if patch else None
        overwritten = rewrite_warnings.build_warnings(pod, service, patch)
        is_repeated = mutation.HASH_ANNOTATION in pod.annotations
        reads_managers = is_repeated or reinvocation.may_have_foreign(pod, service)
    except ValueError as error:
        raise unreadable_resources(error) from None
    if outdated:
        patch = Patch([*outdated, *patch])
    change = "" if qos is None else f"{qos[0]} to {qos[1]}"
    paths = ", ".join(operation.path for operation in patch) or "nothing to change"
    notes = (*([f"QoS class: {change}"] if change else []), paths)
    steps = tuple(StageNote("rewrite", note) for note in notes)
    return Rewrite(patch, overwritten, change, steps, is_repeated, reads_managers)


def _mark_foreign(evaluation: Evaluation, found: Rewrite) -> Rewrite:
    """Return the rewrite with a mark if the Pod has values of others in fields that Podgate writes."""
    return replace(found, patch=reinvocation.mark_foreign(evaluation.pod, evaluation.owner, found.patch))


def _rewrite_again(evaluation: Evaluation, found: Rewrite) -> Rewrite:
    """Return the rewrite without what an earlier call wrote and is outdated. Each Pod has its own managedFields."""
    pod, service = evaluation.pod, evaluation.owner
    former = reinvocation.find_former(pod, evaluation.compiled)
    if former is None or former.name == service.name:
        former = service
    try:
        outdated = reinvocation.remove_outdated(pod, service, former)
    except ValueError as error:  # the former may read more resources
        raise unreadable_resources(error) from None
    if not outdated:
        return found
    evaluation.pod = mutation.apply_patch(pod, outdated)
    return _build_rewrite(evaluation, outdated)


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
        evaluation.deviation = replace(evaluation.deviation, degraded=reason)
        evaluation.note("rewrite", f"{reason}: preferred terms are left out")
    else:
        evaluation.deviation = replace(evaluation.deviation, would_degrade=True)
        evaluation.note("rewrite", f"{service.modes.breaker}: {reason}: preferred terms would be left out")


def deny_if_open(evaluation: Evaluation, view: BreakerView | None, now_us: int) -> None:
    """Deny if the breaker is known to be open, without asking the store: the cheapest denial."""
    service, plan = evaluation.owner, evaluation.plan.breaker
    if view is None or plan is None or evaluation.request.operation != "CREATE":
        return
    if evaluation.plan.queue and evaluation.plan.queue.for_breaker and mutation.has_queue_gate(evaluation.pod):
        return  # it waits until the breaker admits it
    evaluation.note("breaker", view.state)
    if not view.state.is_open or service.modes.breaker is not Mode.ENFORCE or plan.degrades:
        return
    if view.state is State.OPEN and view.early and may_probe_early(event_source(evaluation), view.failed, view.early):
        return  # a probe slot may be free: only the store knows
    evaluation.add_findings("breaker", (denials.build_breaker_finding(service, view),))
    evaluation.receipt = Receipt(now_us, breaker=view)


def check(evaluation: Evaluation) -> None:
    """Check the Pod's fields: a new Pod against the policy, an updated one against its old version."""
    request, old = evaluation.request, evaluation.request.old_pod
    is_new = request.operation == "CREATE"
    if not is_new and old is None:
        raise BadReviewError("AdmissionReview.request.oldObject is missing: UPDATE of pods needs it")
    if request.excess is not None:
        evaluation.add_findings("check", _check_oversized(evaluation, request.excess, None if is_new else old))
        evaluation.decide(evaluation.verdict or Verdict.ADMIT, "check", "too large: not checked further, not charged")
        return
    try:
        if is_new or old is None:
            found = get_or_compute(evaluation, _run_check, evaluation.hash_known)
            findings = record_check(evaluation, found)
            if evaluation.pod.spec.scheduling_gates:
                findings += queueing.check_gate(evaluation)
            if found.has_unshared:
                findings += _check_unshared(evaluation)
        else:
            findings = _check_update(evaluation, old)
    except ValueError as error:
        raise unreadable_resources(error) from None
    if findings:
        _add_findings(evaluation, findings)
    elif not evaluation.would_write:
        evaluation.steps += (_FULFILLED,)
    if not is_new and evaluation.verdict is None and not request.sub_resource:
        evaluation.decide(Verdict.ADMIT, "check", "an UPDATE is not charged")


def _add_findings(evaluation: Evaluation, findings: tuple[Finding, ...]) -> None:
    if evaluation.request.operation == "CREATE" and evaluation.body:
        findings = reinvocation.explain_outdated(findings, evaluation.pod, evaluation.owner)
    evaluation.add_findings("check", findings)


def _check_unshared(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the findings that depend on more of a new Pod than Pods of its kind share."""
    found = grouping.check_group(evaluation)
    if evaluation.owner.variants:
        found += slots.check_variant(evaluation)
    return found + rule_check.check_rules(evaluation) if evaluation.owner.rules else found


def check_recorded(evaluation: Evaluation) -> None:
    """Check a Pod of a replay: one without images comes from a record, which lacks more of what rules may read."""
    if evaluation.owner.rules and not has_images(evaluation.body):
        evaluation.body = b""
    check(evaluation)


def _check_oversized(evaluation: Evaluation, excess: OversizedPod, old: Pod | None) -> tuple[Finding, ...]:
    """Check the size, and in an UPDATE whatever can be judged: the rest of such a Pod must stay as it is."""
    if old is None:
        return validation.check_size(evaluation.owner, excess)
    plan = evaluation.owner.placement_plan if old.spec.scheduling_gates else None
    keys = () if plan is None else plan.list_label_keys()
    differs = excess.differs or any(old.labels.get(key) != evaluation.pod.labels.get(key) for key in keys)
    return validation.check_size(evaluation.owner, excess, differs=differs) + _check_update(evaluation, old)


def _check_update(evaluation: Evaluation, old: Pod) -> tuple[Finding, ...]:
    is_resized = evaluation.request.sub_resource == "resize"
    guarded = validation.check_update(old, evaluation.pod, evaluation.owner, resized=is_resized)
    if evaluation.owner.rules:
        guarded += rule_check.check_rules(evaluation)
    return guarded + queueing.check_resize(evaluation)


def _run_check(evaluation: Evaluation) -> Check:
    return check_new(evaluation.pod, evaluation.owner, hash_known=evaluation.hash_known)


def check_new(pod: Pod, service: Service, *, hash_known: bool) -> Check:
    """Check a new Pod. ValueError: an unreadable quantity."""
    preview = enforcement_preview.preview_enforcement(pod, service)
    findings = validation.check(preview.pod, service, hash_known=hash_known, stored=pod)
    queue = service.quota.queue if service.quota is not None else None
    has_unshared = bool(service.rules or service.variants) or (queue is not None and queue.groups is not None)
    return Check(findings, preview.select_writes(findings), has_unshared)


def record_check(evaluation: Evaluation, found: Check) -> tuple[Finding, ...]:
    """Record what Enforce would only write; return the findings."""
    if found.would_write:
        evaluation.would_write = found.would_write
        evaluation.steps += tuple([StageNote("check", f"{write.mode}: {write}") for write in found.would_write])
    return found.findings
