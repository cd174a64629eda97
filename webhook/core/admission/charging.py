"""Stage "charge": the request to the counter store, and the decision by its receipt or its failure.

Why only the validating half charges: docs/design/charging.md.
"""

from collections.abc import Callable

from webhook.core.admission import denials, mutation
from webhook.core.admission.decision import StageNote, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.pod_results import get_or_compute
from webhook.core.admission.review import Request
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.controllers import CONTROLLER, find_owning_controller
from webhook.core.quota import Acquire, Cost, Receipt, pod_cost
from webhook.core.quota.scheduled_limits import limit_waits


def _compute_cost(evaluation: Evaluation) -> Cost:
    return pod_cost.compute_cost(evaluation.pod, evaluation.compiled.counted[evaluation.owner.name])


def build_acquire(
    evaluation: Evaluation, *, peek: bool = False, compute: Callable[[Evaluation], Cost] = _compute_cost
) -> Acquire:
    """Return the store request: the Pod's cost under its uid. BadReviewError: no uid, unless it only peeks."""
    metadata, request, plan = evaluation.pod.metadata, evaluation.request, evaluation.plan
    if not metadata.uid and not peek:
        raise BadReviewError("AdmissionReview.request.object.metadata.uid is missing: the validating call needs it")
    try:
        return Acquire(
            plan,
            request.namespace,
            metadata.uid,
            get_or_compute(evaluation, compute),
            event_source(evaluation),
            request.dry_run or peek,
            pod_cost.compute_cost(request.old_pod, evaluation.compiled.counted[plan.service])
            if request.sub_resource and request.old_pod is not None
            else None,
            name=metadata.name,
            team=evaluation.team,
        )
    except ValueError as error:
        raise unreadable_resources(error) from None


def foresee_acquire(evaluation: Evaluation) -> Acquire:
    """Return the question whether a new Pod would be charged, asked before its rewrite: at the cost after it."""
    return build_acquire(evaluation, peek=True, compute=_compute_rewritten_cost)


def _compute_rewritten_cost(evaluation: Evaluation) -> Cost:
    service = evaluation.owner
    pod = mutation.apply_resources(evaluation.pod, service)
    return pod_cost.compute_cost(pod, evaluation.compiled.counted[service.name])


def unreadable_resources(error: ValueError) -> BadReviewError:
    return BadReviewError(f"AdmissionReview.request.object.spec: resources: {error}")


def event_source(evaluation: Evaluation) -> str:
    """Return the source of a quota event: the owning controller if a kube controller made the Pod, else the user.

    It is that of `format_controller_source`: a review has bounded the uid already.
    """
    controller = find_owning_controller(evaluation.request.user, evaluation.pod)
    return f"user:{evaluation.request.user}" if controller is None else f"{CONTROLLER}{controller.uid}"


def record_receipt(evaluation: Evaluation, receipt: Receipt) -> None:
    """Record the store's receipt, and decide the review by it."""
    if receipt.refused is not None or receipt.would_refuse:
        asked = evaluation.asked
        if asked is not None and asked.plan.varies:
            receipt = limit_waits(receipt, asked.plan.schedule)
            findings = denials.build_counter_findings(evaluation.owner, receipt, asked)
        else:
            findings = denials.build_counter_findings(evaluation.owner, receipt)
        evaluation.add_findings("charge", findings)
    evaluation.receipt = receipt
    if evaluation.verdict is None:
        evaluation.verdict = Verdict.ADMIT
        evaluation.steps += (_note_of(receipt, evaluation.request),)


def admit_or_deny_uncounted(evaluation: Evaluation, cause: str, reason: str) -> None:
    """Decide without the store, which failed, by the service's whenStoreUnavailable or failureMode.

    A denial has the `cause`, which is the same for many failures; the note of a stage has the whole `reason`.
    """
    finding = denials.build_store_finding(evaluation.owner, evaluation.plan, cause)
    evaluation.add_findings("charge", () if finding is None else (finding,))
    if evaluation.verdict is None:
        evaluation.uncounted = True
        evaluation.decide(Verdict.ADMIT, "charge", f"not counted: {reason}")


_CHARGED = StageNote("charge", "charged")
_NOTHING_TO_CHARGE = StageNote("charge", "nothing to charge")
_NOT_CHARGED = StageNote("charge", "not charged (dry run)")
_REPEATED = StageNote("charge", "repeated uid")
_LOCAL = StageNote("charge", "within this replica's share: the counters are unavailable")


def _note_of(receipt: Receipt, request: Request) -> StageNote:
    if request.dry_run:
        return _NOT_CHARGED
    if receipt.repeated:
        return _REPEATED
    if receipt.local:
        return _LOCAL
    return _CHARGED if receipt.charged else _NOTHING_TO_CHARGE
