"""Slot range of a workload: how many Pods have slots at once, and how many slots come before theirs."""

from typing import NamedTuple

from webhook.core.kubernetes.controllers import WorkloadKind
from webhook.core.workloads.workload import Json, read_mapping, read_whole

_KINDS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job", "CronJob"})


class SlotRange(NamedTuple):
    """`pods` slots, after the first `before`."""

    pods: int
    before: int = 0


def find_slot_range(source: WorkloadKind, document: Json) -> SlotRange | None:
    """Return the slots of a workload object when all of its Pods exist; None for a kind whose Pods have none.

    A Pod of an indexed Job keeps the slot of its index; those of another Job use the slots of Pods that have ended.
    """
    spec = read_mapping(document.get("spec"))
    if source.kind not in _KINDS:
        return None
    if source.owner_kind == "Job":
        spec = read_mapping(read_mapping(spec.get("jobTemplate")).get("spec")) if source.kind == "CronJob" else spec
        at_once = read_whole(spec.get("parallelism"), 1)
        completions = read_whole(spec.get("completions"), at_once)
        return SlotRange(completions if spec.get("completionMode") == "Indexed" else min(at_once, completions))
    start = read_whole(read_mapping(spec.get("ordinals")).get("start"), 0) if source.kind == "StatefulSet" else 0
    return SlotRange(read_whole(spec.get("replicas"), 1), start)
