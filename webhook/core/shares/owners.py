"""Slot owners: the workloads whose Pods have numbered slots, believed only from Kubernetes' own controllers."""

from msgspec import Struct

from webhook.core.kubernetes.controllers import find_owning_controller
from webhook.core.kubernetes.pod import OwnerReference, Pod
from webhook.core.shares.pod_slot import read_number
from webhook.core.workloads.jobs import COMPLETION_INDEX
from webhook.core.workloads.workload import GENERATED_FROM_MAX

_SELECTED_BY = {
    "ReplicaSet": ("apps", "pod-template-hash"),
    "StatefulSet": ("apps", ""),
    "Job": ("batch", "batch.kubernetes.io/controller-uid"),
}
"""By the kind of an owner its API group, and the label that its Pods share with no other Pods of their namespace, as a
rule."""

_UNSELECTED = ("", "")


class SlotOwner(Struct, frozen=True, gc=False):
    """The ReplicaSet, StatefulSet or Job of a Pod.

    `selector` is a label and its value that all of its Pods have, and mostly no others; both "" without one.
    `index`: the Pod's index from 0, None for a Pod that is as good as any other of its owner.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    selector: tuple[str, str] = _UNSELECTED
    index: int | None = None


def find_slot_owner(user: str, pod: Pod, namespace: str) -> SlotOwner | None:
    """Return the owner of a new Pod that `user` creates; None if its Pods have no slots, or `user` may be a tenant."""
    reference = find_owning_controller(user, pod)
    return None if reference is None else _read_owner(reference, pod, namespace)


def find_claimed_slot_owner(pod: Pod) -> SlotOwner | None:
    """Return the owner that an existing Pod names as its controller, which a tenant can write; None without slots."""
    reference = next((found for found in pod.metadata.owner_references or () if found.controller), None)
    return None if reference is None else _read_owner(reference, pod, pod.metadata.namespace)


def _read_owner(reference: OwnerReference, pod: Pod, namespace: str) -> SlotOwner | None:
    group, label = _SELECTED_BY.get(reference.kind, ("", ""))
    if not group or not reference.is_in_group(group):
        return None
    kind = reference.kind
    index = None if kind == "ReplicaSet" else _read_index(reference, pod)
    if index is None and kind == "StatefulSet":
        return None
    value = pod.labels.get(label) if label else None
    selector = _UNSELECTED if value is None else (label, value)
    return SlotOwner(kind, namespace, reference.name, reference.uid, selector, index)


def _read_index(owner: OwnerReference, pod: Pod) -> int | None:
    """Return the index that a StatefulSet or an indexed Job has given a Pod, by its name.

    A template may hold labels and annotations of indexes, and so choose a slot. It cannot hold names.
    """
    metadata = pod.metadata
    if owner.kind == "StatefulSet":
        name, _, ordinal = metadata.name.rpartition("-")
        return read_number(ordinal) if name == owner.name else None
    if owner.kind != "Job" or COMPLETION_INDEX not in pod.annotations:
        return None
    index = pod.annotations[COMPLETION_INDEX]
    suffix = f"-{index}-"
    is_indexed = metadata.generate_name == f"{owner.name[: GENERATED_FROM_MAX - len(suffix)]}{suffix}"
    return read_number(index) if is_indexed else None
