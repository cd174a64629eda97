"""Shares: which variant each Pod of a workload gets, by the number of its slot."""

from webhook.core.shares.owners import SlotOwner, find_slot_owner
from webhook.core.shares.plans import SharesPlan, VariantPlan
from webhook.core.shares.pod_slot import (
    CLAIM_ANNOTATION,
    DELETION_COST,
    INTENDED_ANNOTATION,
    SLOT_ANNOTATION,
    SLOT_ANNOTATIONS,
    SLOTS_MAX,
    PodSlot,
    read_slot,
    read_slot_number,
)
from webhook.core.shares.split import Split

__all__ = [
    "CLAIM_ANNOTATION",
    "DELETION_COST",
    "INTENDED_ANNOTATION",
    "SLOTS_MAX",
    "SLOT_ANNOTATION",
    "SLOT_ANNOTATIONS",
    "PodSlot",
    "SharesPlan",
    "SlotOwner",
    "Split",
    "VariantPlan",
    "find_slot_owner",
    "read_slot",
    "read_slot_number",
]
