"""Part of stage "queue": a new Pod that belongs to a group waits for the others, and carries its membership."""

from msgspec import Struct, json

from webhook.core.admission import queueing
from webhook.core.admission.decision import Finding
from webhook.core.admission.evaluation import Evaluation
from webhook.core.findings import Code
from webhook.core.groups.membership import GROUP_ANNOTATION, GroupError, Membership, find_membership
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.patch import PatchOperation, remove, set_keys
from webhook.core.policy_fields import GroupSource, Mode


class _SchedulingGroup(Struct, frozen=True, rename="camel"):
    pod_group_name: str = ""


class _GroupedSpec(Struct, frozen=True, rename="camel"):
    scheduling_group: _SchedulingGroup | None = None


class _GroupedPod(Struct, frozen=True):
    spec: _GroupedSpec = _GroupedSpec()


class _GroupedRequest(Struct, frozen=True):
    object: _GroupedPod = _GroupedPod()


class _GroupedReview(Struct, frozen=True):
    """The part of a review that only groups read."""

    request: _GroupedRequest = _GroupedRequest()


_OF_POD_GROUPS = frozenset({GroupSource.COSCHEDULING, GroupSource.VOLCANO})
_review = json.Decoder(_GroupedReview)


def join_group(evaluation: Evaluation) -> bool:
    """Let a new Pod that belongs to a group wait, also while there is room; return whether it belongs to one."""
    if evaluation.plan.queue is None or evaluation.plan.queue.groups is None:
        return False
    if evaluation.request.operation != "CREATE" or evaluation.request.excess or evaluation.pod.spec.node_name:
        return False
    try:
        found = _find_membership(evaluation)
    except GroupError as error:  # the other half denies it
        evaluation.note("queue", f"no group: {error}")
        return False
    evaluation.group = "" if found is None else found.encode()
    if found is not None and queueing.may_be_gated(evaluation):
        queueing.add_gate(evaluation, f"its group {found.name} is released together")
    return found is not None


def check_group(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the finding about a new Pod whose group cannot be, or note its group."""
    try:
        found = _find_membership(evaluation)
    except GroupError as error:
        message = f"service {evaluation.owner.name}: {error}"
        return (Finding(Code.GROUP_INVALID, "quota", Mode.ENFORCE, message, error.field),)
    if found is not None:
        holder = "PodGroup" if found.source in _OF_POD_GROUPS else found.source
        size = f"{found.size} Pods" if found.size else f"as many Pods as its {holder} has"
        evaluation.note("check", f"waits with its group {found.name} ({found.source}) until {size} wait and fit")
    return ()


def write_group(evaluation: Evaluation, group: str) -> list[PatchOperation]:
    """Return the operations that write a Pod's membership, "" for none, after those of the rewrite."""
    annotations = evaluation.pod.annotations
    if group:
        return set_keys(("metadata", "annotations"), annotations, {GROUP_ANNOTATION: group})
    return [remove("metadata", "annotations", GROUP_ANNOTATION)] if GROUP_ANNOTATION in annotations else []


def _find_membership(evaluation: Evaluation) -> Membership | None:
    rules = None if evaluation.plan.queue is None else evaluation.plan.queue.groups
    if rules is None:
        return None
    return find_membership(
        evaluation.pod, rules.sources, evaluation.request.user, lambda: _read_pod_group(evaluation.body), rules.size_max
    )


def _read_pod_group(body: bytes) -> str:
    """Return `spec.schedulingGroup.podGroupName`, "" without; a Pod of a record has none."""
    try:
        group = _review.decode(body).request.object.spec.scheduling_group
    except UNREADABLE_JSON:
        return ""
    return "" if group is None else group.pod_group_name
