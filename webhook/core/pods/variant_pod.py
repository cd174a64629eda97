"""Variant Pod: a watched Pod that carries a slot of its workload, and since when it finds no node of its variant.

A Pod that finds no node is evidence against its variant only if nothing else holds it back. Not counted are a Pod with
a scheduling gate, one that waits for the Pods that it preempts, and one whose PersistentVolumeClaims are not bound.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.pod import Pod, PodCondition
from webhook.core.pods.ownership import has_ended, parse_moment_us
from webhook.core.shares import SharesPlan, SlotOwner, read_slot
from webhook.core.shares.owners import find_claimed_slot_owner


class VariantPod(Struct, frozen=True, gc=False):
    """A living Pod of a service with shares. `intended`: the variant that it was to get, another one if it fell back.

    `slot_variant` is the one of its slot by the policy of today, which its replacement gets.
    `claim` is that of its slot in the store, "" for a Pod with an index. `unschedulable_us`: since when no node has
    room for it, 0 for one that is bound, or that something else holds back.
    """

    uid: str
    service: str
    namespace: str
    name: str
    owner: SlotOwner
    slot: int
    variant: str
    intended: str
    slot_variant: str
    claim: str
    probe: str
    """The uid by which the variant's breaker knows the Pod, if it is a probe."""
    version: str
    created_us: int
    unschedulable_us: int = 0
    is_bound: bool = False
    is_ready: bool = False
    has_breaker: bool = True
    """Whether its variant has one: not the last of its policy's list, to which a replacement would come back."""

    @property
    def fell_back(self) -> bool:
        return self.variant != self.intended

    @property
    def place(self) -> tuple[str, int]:
        """The owner's uid and the slot: where its replacement will be."""
        return self.owner.uid, self.slot


def read_variant_pod(
    pod: Pod, service: str, shares: SharesPlan, now_us: int, before: VariantPod | None = None
) -> VariantPod | None:
    """Return a Pod that carries a slot of a workload, None for any other; `before`: as it was known so far."""
    carried, owner = read_slot(pod), find_claimed_slot_owner(pod)
    if carried is None or owner is None:
        return None
    metadata, found, claim = pod.metadata, shares.find(carried.variant), carried.claim
    return VariantPod(
        metadata.uid,
        service,
        metadata.namespace,
        metadata.name,
        owner,
        carried.slot,
        carried.variant,
        intended=carried.intended,
        slot_variant=shares.variants[shares.split.find_variant(carried.slot)].name,
        claim=claim if owner.index is None else "",
        probe=claim or f"{owner.uid}/{carried.slot}",
        version=metadata.resource_version,
        created_us=parse_moment_us(metadata.creation_timestamp),
        unschedulable_us=_find_unschedulable_us(pod, now_us, 0 if before is None else before.unschedulable_us),
        is_bound=bool(pod.spec.node_name),
        is_ready=any(seen.type == "Ready" and seen.status == "True" for seen in pod.status.conditions or ()),
        has_breaker=found is not None and found.counters is not None,
    )


def holds_slot(pod: Pod) -> bool:
    """Return whether a Pod keeps its slot: it has neither ended nor begun to end."""
    return pod.metadata.deletion_timestamp is None and not has_ended(pod)


def _find_unschedulable_us(pod: Pod, now_us: int, known_us: int) -> int:
    """Return since when a Pod has been tried without finding a node; 0 if nothing is known against its variant."""
    scheduled = next((found for found in pod.status.conditions or () if found.type == "PodScheduled"), None)
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return 0
    is_held = pod.spec.scheduling_gates or pod.status.nominated_node_name or _waits_for_volume(scheduled)
    if pod.spec.node_name or is_held:
        return 0
    written_us = _find_time_us(pod.metadata.managed_fields, scheduled) or now_us
    return min(written_us, known_us or written_us)


def _waits_for_volume(scheduled: PodCondition) -> bool:
    """Return whether the scheduler names claims that are not bound, or volumes that they could be bound to."""
    message = (scheduled.message or "").lower()
    return "persistentvolumeclaim" in message or "persistent volume" in message


class _ManagedFields(Struct, frozen=True):
    time: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")

    def list_scheduled_fields(self) -> Any:
        """Return the fields of the condition PodScheduled that this manager has written; None without."""
        found: Any = self.fields if self.subresource == "status" else None
        for key in ("f:status", "f:conditions", 'k:{"type":"PodScheduled"}'):
            found = found.get(key) if isinstance(found, dict) else None
        return found


def _find_time_us(managed_fields: Raw, scheduled: PodCondition) -> int:
    """Return when the scheduler first found no node, 0 if unknown: the time of the condition, if it has written that.

    A Pod that had a gate got the condition with the gate, and the scheduler keeps its time: what it has written itself
    is younger.
    """
    try:
        entries = msgspec.json.decode(managed_fields, type=tuple[_ManagedFields, ...] | None) or ()
    except UNREADABLE_JSON:
        return 0
    written = [(entry, fields) for entry in entries if (fields := entry.list_scheduled_fields()) is not None]
    if any("f:lastTransitionTime" in fields for _, fields in written):
        return parse_moment_us(scheduled.last_transition_time)
    return min((parse_moment_us(entry.time) for entry, _ in written), default=0)
