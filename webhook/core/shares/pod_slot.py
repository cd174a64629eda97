"""Pod slot: the slot and the variant of one Pod, as its label and annotations have them."""

import re
from collections.abc import Mapping

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import VARIANT_LABEL

SLOT_ANNOTATION = "podgate.io/slot"
CLAIM_ANNOTATION = "podgate.io/slot-claim"
INTENDED_ANNOTATION = "podgate.io/intended-variant"
"""Only of a Pod that fell back: which variant its slot had. The split of today may be another one."""
SLOT_ANNOTATIONS = (SLOT_ANNOTATION, CLAIM_ANNOTATION, INTENDED_ANNOTATION)
"""What an UPDATE may not change. Others write deletion costs, too."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
SLOTS_MAX = 100_000
"""More than any workload has Pods. What a Pod carries beyond it was not written by Podgate."""
_FELL_BACK_COST = 1_000_000
"""Pods that fell back are deleted first: it is more than the slots of any workload."""
_NUMBER = re.compile("[0-9]{1,6}")


class PodSlot(Struct, frozen=True, gc=False):
    """`slot` from 1, and the variant that the Pod gets. `intended`: the slot's own variant, another if it fell back.

    `claim` names the Pod before it has a uid; "" for a Pod with an index, whose slot needs no claim. `kind` is the
    owner's.
    """

    slot: int
    variant: str
    intended: str
    claim: str = ""
    kind: str = ""

    @property
    def fell_back(self) -> bool:
        return self.variant != self.intended

    @property
    def deletion_cost(self) -> int:
        """The cost by which a ReplicaSet that shrinks gives up its highest slot first, and before it what fell back."""
        return -self.slot - _FELL_BACK_COST * self.fell_back

    def list_annotations(self) -> dict[str, str]:
        """Return the annotations that the Pod carries. Only ReplicaSets read a cost."""
        cost = {DELETION_COST: str(self.deletion_cost)} if self.kind == "ReplicaSet" else {}
        claim = {CLAIM_ANNOTATION: self.claim} if self.claim else {}
        intended = {INTENDED_ANNOTATION: self.intended} if self.fell_back else {}
        return {SLOT_ANNOTATION: str(self.slot), **claim, **intended, **cost}


def read_slot(pod: Pod) -> PodSlot | None:
    """Return the slot that a Pod carries, which a tenant may have written; None without.

    A Pod fell back only if it says so itself: those of release 0.2.0 do not.
    """
    carried = pod.annotations
    slot, variant = read_slot_number(carried), pod.labels.get(VARIANT_LABEL, "")
    if not variant or not slot:
        return None
    return PodSlot(slot, variant, carried.get(INTENDED_ANNOTATION, variant), carried.get(CLAIM_ANNOTATION, ""))


def read_slot_number(annotations: Mapping[str, str]) -> int:
    """Return the slot that annotations name, 0 for none that Podgate has written."""
    slot = read_number(annotations.get(SLOT_ANNOTATION, "")) or 0
    return slot if slot <= SLOTS_MAX else 0


def read_number(text: str) -> int | None:
    """Return a number that a controller or Podgate has written; None for another text, which a tenant may have."""
    return int(text) if _NUMBER.fullmatch(text) else None
