"""The pure stages of an evaluation: each reads a evaluation, writes down what it found, and may settle the verdict."""

from collections.abc import Mapping

from webhook.core.admission import denials, exemptions, mutation, overwritten, unenforced, validation
from webhook.core.admission.decision import Finding, Half, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.review import BadReviewError
from webhook.core.breaker import BreakerView, State, may_probe_early
from webhook.core.findings import Code
from webhook.core.kubernetes.controllers import CONTROLLER, owning_controller
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.unsettled_labels import SETTLED
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy.model import Service, Unmatched
from webhook.core.policy_spec import Mode
from webhook.core.quota import Acquire, Receipt, pod_cost

_OPEN = frozenset({State.OPEN, State.FORCED_OPEN})


def leave_alone(evaluation: Evaluation) -> None:
    """Settle what is no business of ours: other requests than for Pods, Pods that are exempt or on their way out."""
    request = evaluation.request
    if request.resource != "pods" or request.operation not in {"CREATE", "UPDATE"}:
        return evaluation.settle(Verdict.UNMATCHED, "own", f"{request.operation} of {request.resource} is none of ours")
    if request.sub_resource not in {"", "resize"}:
        return evaluation.settle(Verdict.UNMATCHED, "own", f"pods/{request.sub_resource} is none of ours")
    evaluation.exemption = exemptions.exemption(request, evaluation.pod, evaluation.compiled.policy)
    if evaluation.exemption:
        return evaluation.settle(Verdict.EXEMPT, "own", f"exempt by {evaluation.exemption}")
    if request.operation == "UPDATE" and evaluation.pod.metadata.deletion_timestamp is not None:
        return evaluation.settle(Verdict.ADMIT, "own", "the Pod is being deleted")
    return None


def namespace_labels_decide(evaluation: Evaluation) -> bool:
    """Return whether the labels of the Pod's namespace must be known to say whose it is."""
    matcher, namespace = evaluation.compiled.matcher, evaluation.request.namespace
    if evaluation.request.operation == "UPDATE" or _has_unread_labels(evaluation):
        return matcher.needs_labels(namespace)
    is_strict = evaluation.compiled.policy.unmatched is not Unmatched.ADMIT
    workload = evaluation.request.workload
    unsettled = SETTLED if workload is None else workload.unsettled
    return matcher.labels_decide(namespace, evaluation.pod.labels, to_be_named=is_strict, unsettled=unsettled)


def own(evaluation: Evaluation, namespace_labels: Mapping[str, str]) -> None:
    """Find whose Pod it is."""
    request = evaluation.request
    labels = {NAME_LABEL: request.namespace, **namespace_labels}
    if request.operation == "UPDATE":
        evaluation.service = _owner_of_existing(evaluation, labels)
    else:
        # Where there are too many labels to read, the first service that may own Pods of the namespace speaks.
        own_labels = None if _has_unread_labels(evaluation) else evaluation.pod.labels
        evaluation.service = evaluation.compiled.matcher.owner(request.namespace, labels, own_labels)
    if evaluation.service is not None:
        return evaluation.note("own", f"service {evaluation.service.name}")
    return _unmatched(evaluation, labels)


def _has_unread_labels(evaluation: Evaluation) -> bool:
    return evaluation.request.excess is not None and not evaluation.request.excess.has_labels


def _owner_of_existing(evaluation: Evaluation, labels: Mapping[str, str]) -> Service | None:
    """Go by the label, which is immutable; a Pod without one counts for the service that would own it today.

    A label on a Pod that nobody owned is taken off at CREATE. One that came in while we were away is believed only
    where its service may own Pods, so that nobody can charge another namespace's service by a resize.
    """
    request = evaluation.request
    old = request.old_pod or evaluation.pod
    for pod in (old, evaluation.pod):
        service = evaluation.compiled.believed(pod, request.namespace, labels)
        if service is not None:
            return service
    return evaluation.compiled.matcher.owner(request.namespace, labels, old.labels)


def _unmatched(evaluation: Evaluation, labels: Mapping[str, str]) -> None:
    if evaluation.request.operation == "CREATE" and evaluation.half is Half.MUTATE:
        evaluation.patch = mutation.DISOWN if evaluation.compiled.labelled(evaluation.pod) is not None else ()
    elif evaluation.request.operation == "CREATE":
        evaluation.object_to("own", unowned(evaluation, labels))
    if evaluation.verdict is None:
        evaluation.settle(Verdict.UNMATCHED, "own", "no service matches")


def unowned(evaluation: Evaluation, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what keeps a new Pod out where no service owns it."""
    named = evaluation.compiled.labelled(evaluation.pod)
    return (() if named is None else validation.check_unowned(named)) + _no_service(evaluation, labels)


def _no_service(evaluation: Evaluation, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what `unmatched` says of a new Pod of no service, in a namespace that some service names."""
    policy, namespace = evaluation.compiled.policy, evaluation.request.namespace
    if policy.unmatched is Unmatched.ADMIT or not evaluation.compiled.matcher.names(namespace, labels):
        return ()
    mode = Mode.ENFORCE if policy.unmatched is Unmatched.DENY else Mode.WARN
    message = (
        f"no service of the policy matches the labels of this Pod in namespace {namespace}:"
        " label it for one of the namespace's services, or ask the policy's owner for one"
    )
    return (Finding(Code.UNMATCHED, "unmatched", mode, message),)


def rewrite(evaluation: Evaluation, view: BreakerView | None = None) -> None:
    """Make the patch of a new Pod; an existing one is never rewritten. `view`: how its breaker is known to stand."""
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
        evaluation.overwritten = overwritten.warnings(evaluation.pod, evaluation.owner, evaluation.patch)
    except ValueError as error:
        raise _unreadable(error) from None
    if qos is not None:
        evaluation.qos_change = f"{qos[0]} to {qos[1]}"
        evaluation.note("rewrite", f"QoS class: {evaluation.qos_change}")
    return evaluation.note(
        "rewrite", ", ".join(operation.path for operation in evaluation.patch) or "nothing to change"
    )


def _degrade(evaluation: Evaluation, view: BreakerView) -> None:
    """Let an open breaker leave out what the service's placement only prefers, if it prefers anything."""
    service, breaker = evaluation.owner, evaluation.plan.breaker
    prefers = service.degraded_placement_plan is not service.placement_plan
    if breaker is None or not breaker.degrades or not prefers or service.modes.placement is not Mode.ENFORCE:
        return
    if view.state not in _OPEN:
        return
    reason = f"breaker {view.state}"
    if service.modes.breaker is Mode.ENFORCE:
        evaluation.degraded = reason
        evaluation.note("rewrite", f"{reason}: what is only preferred is left out")
    else:
        evaluation.would_degrade = True
        evaluation.note("rewrite", f"{service.modes.breaker}: {reason}: what is only preferred would be left out")


def refuse_open(evaluation: Evaluation, view: BreakerView | None, now_us: int) -> None:
    """Refuse on a breaker that is known to be open without asking the store: the cheapest refusal of all."""
    service, plan = evaluation.owner, evaluation.plan.breaker
    if view is None or plan is None or evaluation.request.operation != "CREATE":
        return
    evaluation.note("breaker", view.state)
    if view.state not in _OPEN or service.modes.breaker is not Mode.ENFORCE or plan.degrades:
        return
    if view.state is State.OPEN and view.early and may_probe_early(event_source(evaluation), view.failed, view.early):
        return  # there may be room for it: only the store knows
    evaluation.object_to("breaker", (denials.breaker_finding(service, view),))
    evaluation.receipt = Receipt(now_us, breaker=view)


def check(evaluation: Evaluation) -> None:
    """Judge the Pod's fields: a new one against the placement, an existing one against its former self."""
    request, service = evaluation.request, evaluation.owner
    if request.operation == "UPDATE" and request.old_pod is None:
        raise BadReviewError("AdmissionReview.request.oldObject is missing: UPDATE of pods needs it")
    if request.excess is not None:
        evaluation.object_to("check", validation.check_size(service, request.excess))
        evaluation.settle(evaluation.verdict or Verdict.ADMIT, "check", "not judged any further, and not charged")
        return
    try:
        if request.old_pod is None or request.operation == "CREATE":
            findings = check_new(evaluation, evaluation.pod, hash_known=evaluation.hash_known)
        else:
            findings = validation.guard(
                request.old_pod, evaluation.pod, service, resized=request.sub_resource == "resize"
            )
    except ValueError as error:
        raise _unreadable(error) from None
    evaluation.object_to("check", findings)
    if not findings and not evaluation.would_write:
        evaluation.note("check", "fulfilled")
    if evaluation.verdict is None and request.operation == "UPDATE" and not request.sub_resource:
        evaluation.settle(Verdict.ADMIT, "check", "an UPDATE is not charged")


def check_new(evaluation: Evaluation, pod: Pod, *, hash_known: bool) -> tuple[Finding, ...]:
    """Return what the policy objects to in a new Pod, and note what Enforce would merely write into it."""
    trial = unenforced.tried(pod, evaluation.owner)
    findings = validation.check(trial.pod, evaluation.owner, hash_known=hash_known)
    evaluation.would_write = trial.admitted(findings)
    for write in evaluation.would_write:
        evaluation.note("check", f"{write.mode}: {write}")
    return findings


def acquire(evaluation: Evaluation) -> Acquire:
    """Return what the store is asked: the Pod's cost under its uid; BadReviewError where it has none."""
    pod, request, plan = evaluation.pod, evaluation.request, evaluation.plan
    if not pod.metadata.uid:
        raise BadReviewError("AdmissionReview.request.object.metadata.uid is missing: the validating call needs it")
    try:
        names = evaluation.compiled.counted[plan.service]
        taken = pod_cost.taken(pod, names)
        before = pod_cost.taken(request.old_pod, names) if request.sub_resource and request.old_pod else None
    except ValueError as error:
        raise _unreadable(error) from None
    return Acquire(
        plan,
        request.namespace,
        pod.metadata.uid,
        taken,
        event_source(evaluation),
        peek=request.dry_run,
        resize_from=before,
        name=pod.metadata.name,
    )


def _unreadable(error: ValueError) -> BadReviewError:
    return BadReviewError(f"AdmissionReview.request.object.spec: resources: {error}")


def event_source(evaluation: Evaluation) -> str:
    """Return whose quota event a denial is: the owning controller's if a kube controller says so, else the user's."""
    controller = owning_controller(evaluation.request.user, evaluation.pod)
    return f"user:{evaluation.request.user}" if controller is None else f"{CONTROLLER}{controller.uid}"


def charged(evaluation: Evaluation, receipt: Receipt) -> None:
    """Take the store's answer in."""
    evaluation.receipt = receipt
    evaluation.object_to("charge", denials.counter_findings(evaluation.owner, receipt))
    if evaluation.verdict is None:
        evaluation.settle(Verdict.ADMIT, "charge", _charge_in_words(evaluation, receipt))


def uncounted(evaluation: Evaluation, reason: str) -> None:
    """Decide without the store, which gave no answer, as the service says."""
    finding = denials.store_finding(evaluation.owner, evaluation.plan, reason)
    evaluation.object_to("charge", () if finding is None else (finding,))
    if evaluation.verdict is None:
        evaluation.uncounted = True
        evaluation.settle(Verdict.ADMIT, "charge", f"not counted: {reason}")


def _charge_in_words(evaluation: Evaluation, receipt: Receipt) -> str:
    if evaluation.request.dry_run:
        return "not charged (dry run)"
    if receipt.repeated:
        return "repeated uid"
    if receipt.local:
        return "within this replica's share: the counters cannot be asked"
    return "charged" if receipt.charged else "nothing to charge"
