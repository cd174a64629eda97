"""The pure stages of an evaluation: each reads a draft, writes down what it found, and may settle the verdict."""

from collections.abc import Mapping

from webhook.core.admission import denials, exemptions, mutation, overwritten, unenforced, validation
from webhook.core.admission.decision import Finding, Half, Verdict
from webhook.core.admission.evaluation import Draft
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


def leave_alone(draft: Draft) -> None:
    """Settle what is no business of ours: other requests than for Pods, Pods that are exempt or on their way out."""
    request = draft.request
    if request.resource != "pods" or request.operation not in {"CREATE", "UPDATE"}:
        return draft.settle(Verdict.UNMATCHED, "own", f"{request.operation} of {request.resource} is none of ours")
    if request.sub_resource not in {"", "resize"}:
        return draft.settle(Verdict.UNMATCHED, "own", f"pods/{request.sub_resource} is none of ours")
    draft.exemption = exemptions.exemption(request, draft.pod, draft.compiled.policy)
    if draft.exemption:
        return draft.settle(Verdict.EXEMPT, "own", f"exempt by {draft.exemption}")
    if request.operation == "UPDATE" and draft.pod.metadata.deletion_timestamp is not None:
        return draft.settle(Verdict.ADMIT, "own", "the Pod is being deleted")
    return None


def namespace_labels_decide(draft: Draft) -> bool:
    """Return whether the labels of the Pod's namespace must be known to say whose it is."""
    matcher, namespace = draft.compiled.matcher, draft.request.namespace
    if draft.request.operation == "UPDATE" or _has_unread_labels(draft):
        return matcher.needs_labels(namespace)
    is_strict = draft.compiled.policy.unmatched is not Unmatched.ADMIT
    workload = draft.request.workload
    unsettled = SETTLED if workload is None else workload.unsettled
    return matcher.labels_decide(namespace, draft.pod.labels, to_be_named=is_strict, unsettled=unsettled)


def own(draft: Draft, namespace_labels: Mapping[str, str]) -> None:
    """Find whose Pod it is."""
    request = draft.request
    labels = {NAME_LABEL: request.namespace, **namespace_labels}
    if request.operation == "UPDATE":
        draft.service = _owner_of_existing(draft, labels)
    else:
        # Where there are too many labels to read, the first service that may own Pods of the namespace speaks.
        own_labels = None if _has_unread_labels(draft) else draft.pod.labels
        draft.service = draft.compiled.matcher.owner(request.namespace, labels, own_labels)
    if draft.service is not None:
        return draft.note("own", f"service {draft.service.name}")
    return _unmatched(draft, labels)


def _has_unread_labels(draft: Draft) -> bool:
    return draft.request.excess is not None and not draft.request.excess.has_labels


def _owner_of_existing(draft: Draft, labels: Mapping[str, str]) -> Service | None:
    """Go by the label, which is immutable; a Pod without one counts for the service that would own it today.

    A label on a Pod that nobody owned is taken off at CREATE. One that came in while we were away is believed only
    where its service may own Pods, so that nobody can charge another namespace's service by a resize.
    """
    request = draft.request
    old = request.old_pod or draft.pod
    for pod in (old, draft.pod):
        service = draft.compiled.believed(pod, request.namespace, labels)
        if service is not None:
            return service
    return draft.compiled.matcher.owner(request.namespace, labels, old.labels)


def _unmatched(draft: Draft, labels: Mapping[str, str]) -> None:
    if draft.request.operation == "CREATE" and draft.half is Half.MUTATE:
        draft.patch = mutation.DISOWN if draft.compiled.labelled(draft.pod) is not None else ()
    elif draft.request.operation == "CREATE":
        draft.object_to("own", unowned(draft, labels))
    if draft.verdict is None:
        draft.settle(Verdict.UNMATCHED, "own", "no service matches")


def unowned(draft: Draft, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what keeps a new Pod out where no service owns it."""
    named = draft.compiled.labelled(draft.pod)
    return (() if named is None else validation.check_unowned(named)) + _no_service(draft, labels)


def _no_service(draft: Draft, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what `unmatched` says of a new Pod of no service, in a namespace that some service names."""
    policy, namespace = draft.compiled.policy, draft.request.namespace
    if policy.unmatched is Unmatched.ADMIT or not draft.compiled.matcher.names(namespace, labels):
        return ()
    mode = Mode.ENFORCE if policy.unmatched is Unmatched.DENY else Mode.WARN
    message = (
        f"no service of the policy matches the labels of this Pod in namespace {namespace}:"
        " label it for one of the namespace's services, or ask the policy's owner for one"
    )
    return (Finding(Code.UNMATCHED, "unmatched", mode, message),)


def rewrite(draft: Draft, view: BreakerView | None = None) -> None:
    """Make the patch of a new Pod; an existing one is never rewritten. `view`: how its breaker is known to stand."""
    if draft.request.operation != "CREATE":
        return draft.note("rewrite", "only new Pods are rewritten")
    if draft.request.excess is not None:
        return draft.note("rewrite", draft.request.excess.text)
    if view is not None:
        _degrade(draft, view)
    try:
        draft.patch = mutation.rewrite(draft.pod, draft.owner, draft.compiled.hash, degraded=bool(draft.degraded))
        qos = mutation.qos_change(draft.pod, draft.owner) if draft.patch else None
        draft.overwritten = overwritten.warnings(draft.pod, draft.owner, draft.patch)
    except ValueError as error:
        raise _unreadable(error) from None
    if qos is not None:
        draft.qos_change = f"{qos[0]} to {qos[1]}"
        draft.note("rewrite", f"QoS class: {draft.qos_change}")
    return draft.note("rewrite", ", ".join(operation.path for operation in draft.patch) or "nothing to change")


def _degrade(draft: Draft, view: BreakerView) -> None:
    """Let an open breaker leave out what the service's placement only prefers, if it prefers anything."""
    service, breaker = draft.owner, draft.plan.breaker
    prefers = service.degraded_placement_plan is not service.placement_plan
    if breaker is None or not breaker.degrades or not prefers or service.modes.placement is not Mode.ENFORCE:
        return
    if view.state not in _OPEN:
        return
    reason = f"breaker {view.state}"
    if service.modes.breaker is Mode.ENFORCE:
        draft.degraded = reason
        draft.note("rewrite", f"{reason}: what is only preferred is left out")
    else:
        draft.would_degrade = True
        draft.note("rewrite", f"{service.modes.breaker}: {reason}: what is only preferred would be left out")


def refuse_open(draft: Draft, view: BreakerView | None, now_us: int) -> None:
    """Refuse on a breaker that is known to be open without asking the store: the cheapest refusal of all."""
    service, plan = draft.owner, draft.plan.breaker
    if view is None or plan is None or draft.request.operation != "CREATE":
        return
    draft.note("breaker", view.state)
    if view.state not in _OPEN or service.modes.breaker is not Mode.ENFORCE or plan.degrades:
        return
    if view.state is State.OPEN and view.early and may_probe_early(event_source(draft), view.failed, view.early):
        return  # there may be room for it: only the store knows
    draft.object_to("breaker", (denials.breaker_finding(service, view),))
    draft.receipt = Receipt(now_us, breaker=view)


def check(draft: Draft) -> None:
    """Judge the Pod's fields: a new one against the placement, an existing one against its former self."""
    request, service = draft.request, draft.owner
    if request.operation == "UPDATE" and request.old_pod is None:
        raise BadReviewError("AdmissionReview.request.oldObject is missing: UPDATE of pods needs it")
    if request.excess is not None:
        draft.object_to("check", validation.check_size(service, request.excess))
        draft.settle(draft.verdict or Verdict.ADMIT, "check", "not judged any further, and not charged")
        return
    try:
        if request.old_pod is None or request.operation == "CREATE":
            findings = check_new(draft, draft.pod, hash_known=draft.hash_known)
        else:
            findings = validation.guard(request.old_pod, draft.pod, service, resized=request.sub_resource == "resize")
    except ValueError as error:
        raise _unreadable(error) from None
    draft.object_to("check", findings)
    if not findings and not draft.would_write:
        draft.note("check", "fulfilled")
    if draft.verdict is None and request.operation == "UPDATE" and not request.sub_resource:
        draft.settle(Verdict.ADMIT, "check", "an UPDATE is not charged")


def check_new(draft: Draft, pod: Pod, *, hash_known: bool) -> tuple[Finding, ...]:
    """Return what the policy objects to in a new Pod, and note what Enforce would merely write into it."""
    trial = unenforced.tried(pod, draft.owner)
    findings = validation.check(trial.pod, draft.owner, hash_known=hash_known)
    draft.would_write = trial.admitted(findings)
    for write in draft.would_write:
        draft.note("check", f"{write.mode}: {write}")
    return findings


def acquire(draft: Draft) -> Acquire:
    """Return what the store is asked: the Pod's cost under its uid; BadReviewError where it has none."""
    pod, request, plan = draft.pod, draft.request, draft.plan
    if not pod.metadata.uid:
        raise BadReviewError("AdmissionReview.request.object.metadata.uid is missing: the validating call needs it")
    try:
        names = draft.compiled.counted[plan.service]
        taken = pod_cost.taken(pod, names)
        before = pod_cost.taken(request.old_pod, names) if request.sub_resource and request.old_pod else None
    except ValueError as error:
        raise _unreadable(error) from None
    return Acquire(
        plan,
        request.namespace,
        pod.metadata.uid,
        taken,
        event_source(draft),
        peek=request.dry_run,
        resize_from=before,
        name=pod.metadata.name,
    )


def _unreadable(error: ValueError) -> BadReviewError:
    return BadReviewError(f"AdmissionReview.request.object.spec: resources: {error}")


def event_source(draft: Draft) -> str:
    """Return whose quota event a denial is: the owning controller's if a kube controller says so, else the user's."""
    controller = owning_controller(draft.request.user, draft.pod)
    return f"user:{draft.request.user}" if controller is None else f"{CONTROLLER}{controller.uid}"


def charged(draft: Draft, receipt: Receipt) -> None:
    """Take the store's answer in."""
    draft.receipt = receipt
    draft.object_to("charge", denials.counter_findings(draft.owner, receipt))
    if draft.verdict is None:
        draft.settle(Verdict.ADMIT, "charge", _charge_in_words(draft, receipt))


def uncounted(draft: Draft, reason: str) -> None:
    """Decide without the store, which gave no answer, as the service says."""
    finding = denials.store_finding(draft.owner, draft.plan, reason)
    draft.object_to("charge", () if finding is None else (finding,))
    if draft.verdict is None:
        draft.uncounted = True
        draft.settle(Verdict.ADMIT, "charge", f"not counted: {reason}")


def _charge_in_words(draft: Draft, receipt: Receipt) -> str:
    if draft.request.dry_run:
        return "not charged (dry run)"
    if receipt.repeated:
        return "repeated uid"
    if receipt.local:
        return "within this replica's share: the counters cannot be asked"
    return "charged" if receipt.charged else "nothing to charge"
