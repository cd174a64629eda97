"""Stages "exempt" and "own": requests outside any policy, exempt Pods, and the service that owns a Pod."""

from collections.abc import Callable, Mapping

from webhook.core.admission import exemptions, mutation, queueing, reinvocation, slots, validation
from webhook.core.admission.charging import unreadable_resources
from webhook.core.admission.decision import Deviation, Finding, Half, StageNote, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.controllers import find_claimed_owner_kind
from webhook.core.kubernetes.label_constraints import RESOLVED
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy.model import Service, Unmatched
from webhook.core.policy_fields import Mode
from webhook.core.quota.teams import describe_own_team, find_team

_NO_SERVICE = StageNote("own", "no service matches")


def exempt(is_releaser: Callable[[str], bool], evaluation: Evaluation) -> None:
    """Decide requests that no policy applies to: other resources, exempt Pods, and releases by `is_releaser`.

    An UPDATE of a Pod that is being deleted is judged as any other: the Pod counts until it is gone.
    """
    request = evaluation.request
    if request.resource != "pods" or request.operation not in {"CREATE", "UPDATE"}:
        return evaluation.decide(
            Verdict.UNMATCHED, "own", f"{request.operation} of {request.resource} is not handled by Podgate"
        )
    if request.sub_resource and request.sub_resource != "resize":
        return evaluation.decide(Verdict.UNMATCHED, "own", f"pods/{request.sub_resource} is not handled by Podgate")
    if request.pod is None:
        raise BadReviewError("AdmissionReview.request.object is missing: CREATE and UPDATE of pods need it")
    exemption = exemptions.find_exemption(request, request.pod, evaluation.compiled.policy)
    if exemption:
        evaluation.deviation = Deviation(exemption)
        return evaluation.decide(Verdict.EXEMPT, "own", f"exempt by {exemption}")
    if request.operation == "UPDATE" and exemptions.is_release(request) and is_releaser(request.user):
        evaluation.decide(Verdict.ADMIT, "own", "Podgate releases the Pod, which it has charged")
    return None


def needs_namespace_labels(evaluation: Evaluation) -> bool:
    """Return whether the Pod's owner, or what the owner writes, depends on labels of its namespace.

    Called only if some service reads such labels.
    """
    matcher, request = evaluation.compiled.matcher, evaluation.request
    if any(service.namespace_keys for service in matcher.list_candidates(request.namespace)):
        return True
    if request.operation == "UPDATE":
        return True
    is_strict = evaluation.compiled.policy.unmatched is not Unmatched.ADMIT
    unresolved = RESOLVED if request.workload is None else request.workload.unresolved
    return matcher.labels_decide(
        request.namespace, evaluation.pod.labels, request.owner_kind, to_be_named=is_strict, unresolved=unresolved
    )


def find_owner(evaluation: Evaluation, namespace_labels: Mapping[str, str]) -> None:
    """Find the service that owns the Pod; without one, apply `unmatched`."""
    request = evaluation.request
    candidates = evaluation.compiled.matcher.by_namespace[request.namespace]
    labels = {NAME_LABEL: request.namespace, **namespace_labels} if candidates.read_labels else namespace_labels
    if request.operation == "UPDATE":
        service = _find_owner_of_existing(evaluation, labels)
    elif candidates.is_certain:
        service = candidates.first
    else:
        service = _find_owner_of_new(evaluation, labels)
    if service is None:
        return _decide_unmatched(evaluation, labels)
    if service.adapts:
        service = _adapt(evaluation, service, labels)
    evaluation.service = service
    evaluation.steps += (StageNote("own", f"service {service.name}"),)
    return None


def _adapt(evaluation: Evaluation, service: Service, labels: Mapping[str, str]) -> Service:
    """Return the service as it is for the Pod: in its Namespace, and for the variant that the Pod has got."""
    if service.namespace_keys:
        evaluation.namespace_values = {key: labels[key] for key in service.namespace_keys if key in labels}
        service = evaluation.compiled.resolve_service(service, evaluation.namespace_values)
        evaluation.team = find_team(service.quota, evaluation.namespace_values)
        if evaluation.team:
            evaluation.note("own", f"counts for {describe_own_team(service.quota, evaluation.team)}")
    return slots.adopt_variant(evaluation, service) if service.variants else service


def _find_owner_of_new(evaluation: Evaluation, labels: Mapping[str, str]) -> Service | None:
    request, matcher = evaluation.request, evaluation.compiled.matcher
    kind = request.owner_kind if matcher.reads_kinds else ""
    return matcher.find_owner(request.namespace, labels, evaluation.pod.labels, kind)


def _find_owner_of_existing(evaluation: Evaluation, labels: Mapping[str, str]) -> Service | None:
    """Return the service that the immutable label names; without one, the service that matches today.

    CREATE removes the label from a Pod of no service. A label written while the webhook was down counts only if its
    service may own Pods in the namespace: otherwise a resize could charge another namespace's service. The Pod's
    creator is no longer known, so ownerKinds are compared with its ownerReferences.
    """
    request = evaluation.request
    old = request.old_pod or evaluation.pod
    for pod in (old, evaluation.pod):
        service = evaluation.compiled.find_owner_by_label(pod, request.namespace, labels)
        if service is not None:
            return service
    kind = find_claimed_owner_kind(old.metadata.owner_references, old.labels)
    return evaluation.compiled.matcher.find_owner(request.namespace, labels, old.labels, kind)


def _decide_unmatched(evaluation: Evaluation, labels: Mapping[str, str]) -> None:
    if evaluation.request.operation == "CREATE":
        if evaluation.half is Half.VALIDATE:
            evaluation.add_findings("own", check_ownerless(evaluation, labels))
        elif SERVICE_LABEL in evaluation.pod.labels:
            _disown(evaluation)
    if evaluation.verdict is None:
        evaluation.verdict = Verdict.UNMATCHED
        evaluation.steps += (_NO_SERVICE,)


def _disown(evaluation: Evaluation) -> None:
    """Remove the label of a service from a Pod of none, and what an earlier call wrote for that service."""
    former = reinvocation.find_former(evaluation.pod, evaluation.compiled)
    if former is None:
        return
    try:
        is_small = evaluation.request.excess is None
        evaluation.patch = reinvocation.disown(evaluation.pod, former) if is_small else mutation.DISOWN
    except ValueError as error:
        raise unreadable_resources(error) from None


def check_ownerless(evaluation: Evaluation, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the findings about a new Pod that no service owns."""
    named = evaluation.compiled.find_by_label(evaluation.pod)
    label = () if named is None else validation.check_foreign_label(named)
    return label + queueing.check_gate(evaluation) + _check_unmatched(evaluation, labels)


def _check_unmatched(evaluation: Evaluation, labels: Mapping[str, str]) -> tuple[Finding, ...]:
    """Apply `unmatched` to a new Pod of no service, in a namespace that some service names."""
    policy, namespace = evaluation.compiled.policy, evaluation.request.namespace
    if policy.unmatched is Unmatched.ADMIT or not evaluation.compiled.matcher.names(namespace, labels):
        return ()
    mode = Mode.ENFORCE if policy.unmatched is Unmatched.DENY else Mode.WARN
    message = (
        f"no service of the policy matches the labels of this Pod in namespace {namespace}:"
        " label it for one of the namespace's services, or ask the policy's owner for one"
    )
    return (Finding(Code.UNMATCHED, "unmatched", mode, message),)
