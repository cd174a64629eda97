"""Slots at admission: a new Pod of a workload gets a slot, and with it a variant of its service's placement."""

from webhook.core.admission import mutation, validation
from webhook.core.admission.decision import Finding
from webhook.core.admission.evaluation import Evaluation
from webhook.core.findings import Code, shorten_value
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.sent_fields import is_sent
from webhook.core.patch import PatchOperation, format_pointer, remove, set_keys
from webhook.core.placement import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.shares import (
    DELETION_COST,
    INTENDED_ANNOTATION,
    SLOT_ANNOTATIONS,
    PodSlot,
    SlotOwner,
    find_slot_owner,
    read_slot,
)

_LABEL = f"metadata.labels[{VARIANT_LABEL}]"
_ANNOTATIONS = ("metadata", "annotations")
_WRITTEN = (*SLOT_ANNOTATIONS, DELETION_COST)
_SLOT_POINTER, _CLAIM_POINTER, _INTENDED_POINTER, _COST_POINTER = (
    format_pointer(*_ANNOTATIONS, key) for key in _WRITTEN
)


def find_dividable(evaluation: Evaluation) -> SlotOwner | None:
    """Return the owner in which a new Pod takes a slot; None for a Pod that takes none.

    A Pod that an earlier call of the same admission has given a slot keeps it, unless it has come to another service. A
    label that its creator wrote stays: a selector of the owner may hold it, and a Pod that the selector does not match
    is made again and again. The other half denies such a Pod.
    """
    request, pod = evaluation.request, evaluation.pod
    if request.operation != "CREATE" or request.excess is not None or pod.spec.node_name:
        return None
    if VARIANT_LABEL in pod.labels and not _is_of_another_service(evaluation, evaluation.owner):
        return None
    return find_slot_owner(request.user, pod, request.namespace)


def take_slot(evaluation: Evaluation, slot: PodSlot, found: str) -> None:
    """Rewrite the Pod as one of the variant that its slot has got."""
    evaluation.slot, evaluation.slot_reason = slot, found
    evaluation.service = evaluation.owner.variants[slot.variant]
    evaluation.note("rewrite", found)


def write_slot(evaluation: Evaluation, slot: PodSlot) -> list[PatchOperation]:
    """Return the operations that write a Pod's slot, after those of the rewrite."""
    carried = evaluation.pod.annotations
    if not carried.keys().isdisjoint(_WRITTEN):
        forged = INTENDED_ANNOTATION in carried and not slot.fell_back
        return [
            *([remove(*_ANNOTATIONS, INTENDED_ANNOTATION)] if forged else []),
            *set_keys(_ANNOTATIONS, carried, slot.list_annotations()),
        ]
    operations = [PatchOperation("add", _SLOT_POINTER, str(slot.slot))]
    if slot.claim:
        operations.append(PatchOperation("add", _CLAIM_POINTER, slot.claim))
    if slot.fell_back:
        operations.append(PatchOperation("add", _INTENDED_POINTER, slot.intended))
    if slot.kind == "ReplicaSet":
        operations.append(PatchOperation("add", _COST_POINTER, str(slot.deletion_cost)))
    return operations


def adopt_variant(evaluation: Evaluation, service: Service) -> Service:
    """Return the service as it is for the variant that a Pod carries; the service itself for a Pod without one.

    A new Pod carries a variant if Podgate wrote it, in an earlier call of the same admission.
    """
    if evaluation.request.operation == "CREATE":
        if evaluation.slot is not None:  # of a record
            return service.variants.get(evaluation.slot.variant, service)
        if not is_own(evaluation) or _is_of_another_service(evaluation, service):
            return service
        carried = read_slot(evaluation.pod)
        is_known = carried is not None and {carried.variant, carried.intended} <= service.variants.keys()
        evaluation.slot = carried if is_known else None
        return service.variants.get(evaluation.pod.labels[VARIANT_LABEL], service)
    old = evaluation.request.old_pod or evaluation.pod
    evaluation.add_findings("own", _check_changes(old, evaluation.pod, service))
    return service.variants.get(old.labels.get(VARIANT_LABEL, ""), service)


def is_own(evaluation: Evaluation) -> bool:
    """Return whether Podgate wrote the variant of a new Pod: its creator may not choose it."""
    pod, request = evaluation.pod, evaluation.request
    return (
        VARIANT_LABEL in pod.labels
        and request.workload is None
        and mutation.is_label_written(pod.metadata, VARIANT_LABEL)
        and find_slot_owner(request.user, pod, request.namespace) is not None
    )


def _is_of_another_service(evaluation: Evaluation, service: Service) -> bool:
    """Return whether Podgate wrote a new Pod's variant in an earlier call, for a service that it has left since."""
    pod = evaluation.pod
    named = pod.labels.get(SERVICE_LABEL, service.name)
    return named != service.name and is_own(evaluation) and mutation.is_written_before(pod)


def remove_slot(pod: Pod) -> list[PatchOperation]:
    """Return the operations that remove the slot that Podgate wrote for a service that the Pod has left."""
    if VARIANT_LABEL not in pod.labels or not mutation.is_label_written(pod.metadata, VARIANT_LABEL):
        return []
    carried = [key for key in _WRITTEN if key in pod.annotations]
    return [remove(*_ANNOTATIONS, key) for key in carried if not is_sent(pod.metadata, *_ANNOTATIONS, key)]


def check_variant(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the finding about a new Pod of a service with shares that carries no variant of Podgate's."""
    request, pod, service = evaluation.request, evaluation.pod, evaluation.owner
    if _is_of_another_service(evaluation, service):
        return ()  # the other findings name its label
    if VARIANT_LABEL in pod.labels:
        message = (
            f"service {service.name}: {_LABEL} is {shorten_value(pod.labels[VARIANT_LABEL])!r}, which Podgate did not"
            " write: it alone chooses the variant; remove the label from the Pod, its template, and the selector of its"
            " workload"
        )
        return (Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.ENFORCE, message, _LABEL),)
    is_divided = find_slot_owner(request.user, pod, request.namespace) is not None and not pod.spec.node_name
    if not is_divided or not mutation.is_written_before(pod) or not evaluation.hash_known:
        return ()
    message = f"service {service.name}: {_LABEL} is missing: something changed the Pod after Podgate; try again"
    return (Finding(Code.PLACEMENT_UNFULFILLED, "placement", Mode.ENFORCE, message, _LABEL),)


def _check_changes(old: Pod, new: Pod, service: Service) -> tuple[Finding, ...]:
    """Return the findings about an UPDATE that changes a Pod's slot, or gives a variant to a Pod without one."""
    kept = [
        (f"metadata.annotations[{key}]", old.annotations.get(key), new.annotations.get(key)) for key in SLOT_ANNOTATIONS
    ]
    if VARIANT_LABEL not in old.labels:  # the placement of a variant guards its label
        kept.append((_LABEL, None, new.labels.get(VARIANT_LABEL)))
    return tuple(
        validation.build_change_finding(service, field, before, after)
        for field, before, after in kept
        if before != after
    )
