"""Mutation: the JSON Patch that gives a new Pod its service's policy. Idempotent."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from webhook.core import container_resources, placement
from webhook.core.kubernetes.pod import Pod, PodMetadata
from webhook.core.kubernetes.sent_fields import is_sent
from webhook.core.patch import NO_PATCH, Patch, PatchOperation, append, apply, remove, set_keys
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode, QosClass

HASH_ANNOTATION = "podgate.io/policy-hash"
QUEUE_GATE = "podgate.io/quota"
_GATE_KEY = f'k:{{"name":"{QUEUE_GATE}"}}'
_NO_MANAGERS = frozenset({b"", b"null", b"[]"})
_pod = msgspec.json.Decoder(Pod)
_encoder = msgspec.json.Encoder()
_NOTHING = Raw(b"null")
DISOWN = Patch([remove("metadata", "labels", SERVICE_LABEL)])
"""Removes the label of a service that does not own the Pod: it would later count as that service's Pod."""


def is_hash_written(metadata: PodMetadata) -> bool:
    """Return whether Podgate wrote the policy hash that a new Pod carries: in another call of the same admission."""
    return _is_written(metadata, "metadata", "annotations", HASH_ANNOTATION)


def is_written_before(pod: Pod) -> bool:
    """Return whether an earlier call of the same admission has rewritten a new Pod."""
    return HASH_ANNOTATION in pod.annotations and is_hash_written(pod.metadata)


def is_gate_written(metadata: PodMetadata) -> bool:
    """Return whether Podgate wrote the gate that a new Pod carries.

    Its service may have no queue any more: an override can end the queue between the halves.
    """
    return _is_written(metadata, "spec", "schedulingGates", _GATE_KEY)


def is_label_written(metadata: PodMetadata, label: str) -> bool:
    """Return whether a webhook wrote a label that a new Pod carries."""
    return _is_written(metadata, "metadata", "labels", label)


def _is_written(metadata: PodMetadata, *path: str) -> bool:
    """Return whether a webhook wrote a field: managedFields record what the creator sent, before webhooks run.

    Without managedFields the writer is unknown, and the creator counts as the writer.
    """
    return bytes(metadata.managed_fields) not in _NO_MANAGERS and not is_sent(metadata, *path)


def rewrite(pod: Pod, service: Service, policy_hash: str, *, degraded: bool = False, is_gated: bool = False) -> Patch:
    """Return the patch that applies the service's policy; empty if the Pod already has it. f(f(x)) = f(x).

    A service whose modes are all Disabled only removes the label of another one.
    `degraded`: without preferred placement terms. `is_gated`: with the scheduling gate of a Pod that waits.
    ValueError: an unreadable quantity.
    """
    if service.modes.is_all_disabled():
        return disown(pod, service)
    labels, annotations = {SERVICE_LABEL: service.name}, {HASH_ANNOTATION: policy_hash}
    is_placed = service.modes.placement is Mode.ENFORCE
    if is_placed and service.placement_plan is not None:
        labels |= placement.compute_labels(pod, service.placement_plan)
        annotations |= placement.compute_annotations(pod, service.placement_plan)
    operations = _set_metadata(pod, labels, annotations)
    if is_placed:
        operations += _place_spec(pod, service, degraded=degraded)
    if service.modes.resources is Mode.ENFORCE:
        operations += set_resources(pod, service)
    if is_gated and not has_queue_gate(pod):
        operations += append([{"name": QUEUE_GATE}], pod.spec.scheduling_gates, "spec", "schedulingGates")
    return Patch(operations)


def disown(pod: Pod, service: Service) -> Patch:
    """Return the patch that only removes the label of another service."""
    return NO_PATCH if pod.labels.get(SERVICE_LABEL, service.name) == service.name else DISOWN


def has_queue_gate(pod: Pod) -> bool:
    """Return whether a Pod waits for its release, or is to wait."""
    gates = pod.spec.scheduling_gates
    return gates is not None and any(gate.name == QUEUE_GATE for gate in gates)


def place_pod(pod: Pod, service: Service) -> list[PatchOperation]:
    """Return the operations that apply the service's placement, regardless of its mode."""
    plan = service.placement_plan
    if plan is None:
        return []
    described = _set_metadata(pod, placement.compute_labels(pod, plan), placement.compute_annotations(pod, plan))
    return described + placement.build_operations(pod, plan, predict_qos_class(pod, service))


def _set_metadata(pod: Pod, labels: dict[str, str], annotations: dict[str, str]) -> list[PatchOperation]:
    """Return the operations that set labels and annotations."""
    return [
        *set_keys(("metadata", "labels"), pod.metadata.labels, labels),
        *set_keys(("metadata", "annotations"), pod.metadata.annotations, annotations),
    ]


def _place_spec(pod: Pod, service: Service, *, degraded: bool) -> list[PatchOperation]:
    plan = service.degraded_placement_plan if degraded else service.placement_plan
    return [] if plan is None else placement.build_operations(pod, plan, predict_qos_class(pod, service))


def predict_qos_class(pod: Pod, service: Service) -> QosClass | None:
    """Return the QoS class that decides a Pod's placement, None if no class does. ValueError: unreadable quantity.

    It is the class after the service's resources are applied, unless the placement is enforced and they are not.
    """
    plan, modes = service.placement_plan, service.modes
    if plan is None or not plan.tolerations_by_class:
        return None
    counted = {Mode.ENFORCE} if modes.placement is Mode.ENFORCE else {Mode.ENFORCE, Mode.WARN, Mode.AUDIT}
    written = set_resources(pod, service) if modes.resources in counted else []
    return container_resources.find_qos_class(apply_patch(pod, written))


def set_resources(pod: Pod, service: Service) -> list[PatchOperation]:
    """Return the operations that apply the service's resources, regardless of mode. ValueError: unreadable quantity."""
    plan = _choose_range_plan(pod, service)
    return [] if plan is None else container_resources.build_operations(pod, plan)


def apply_resources(pod: Pod, service: Service) -> Pod:
    """Return the Pod with the resources that the rewrite will give it. ValueError: an unreadable quantity."""
    plan = _choose_range_plan(pod, service) if service.modes.resources is Mode.ENFORCE else None
    return pod if plan is None else container_resources.apply_plan(pod, plan)


def _choose_range_plan(pod: Pod, service: Service) -> container_resources.RangePlan | None:
    """Return the plan of the service's resources for a Pod, which an earlier call may have rewritten.

    Label and annotation need no proof of who wrote them: they only keep a request as it is.
    """
    plan = service.range_plan
    if plan is None or plan.own_later is None or service.modes.resources is not Mode.ENFORCE:
        return plan
    is_rewritten = pod.labels.get(SERVICE_LABEL) == service.name and HASH_ANNOTATION in pod.annotations
    return plan.later if is_rewritten else plan


def apply_patch(pod: Pod, operations: Sequence[PatchOperation]) -> Pod:
    """Return the Pod with `operations` applied."""
    if not operations:
        return pod
    # No operation is about managedFields, in which anybody may write what is no UTF-8.
    document = msgspec.json.decode(_encoder.encode(_set_managed_fields(pod, _NOTHING)))
    apply(operations, document)
    return _set_managed_fields(_pod.decode(_encoder.encode(document)), pod.metadata.managed_fields)


def _set_managed_fields(pod: Pod, managed_fields: Raw) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, managed_fields=managed_fields))


def find_qos_change(pod: Pod, service: Service) -> tuple[str, str] | None:
    """Return the QoS class before and after the rewrite, None if unchanged: it decides the eviction order."""
    plan = _choose_range_plan(pod, service)
    return (
        None
        if plan is None or service.modes.resources is not Mode.ENFORCE
        else container_resources.find_qos_change(pod, plan)
    )
