"""Slots of the Pods of workloads: who gives them, who counts them, and where the truth about them is."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from msgspec import Struct

from webhook.core.quota import CounterPlan
from webhook.core.shares import PodSlot, SharesPlan, SlotOwner


class TakenSlot(Struct, frozen=True, gc=False):
    """The slot of a new Pod, and in words how it came about."""

    slot: PodSlot
    reason: str


class PodSlots(Protocol):
    """Giver of slots to new Pods."""

    async def take(
        self, shares: SharesPlan, plan: CounterPlan, owner: SlotOwner, claim: str, *, is_dry_run: bool
    ) -> TakenSlot:
        """Return the slot and the variant of a new Pod; `claim` names the Pod, and a repetition gets the same slot.

        It always answers: where neither store nor API server does, the slot is a guess, and the reason says so.
        """
        ...


class SlotClaim(Struct, frozen=True, gc=False):
    """The answer to a claim. `replicas`: how many slots the owner has, as far as the store was told.

    An owner that the store does not know has no slot to give: `slot` is 0.
    """

    slot: int
    replicas: int = 0


class HeldSlot(Struct, frozen=True, gc=False):
    """A slot that a Pod in the cluster carries, and the claim by which the Pod got it."""

    slot: int
    claim: str


class SlotStore(Protocol):
    """Slots of owners whose Pods have no index. Each call is atomic; StoreUnavailableError without an answer."""

    def claim(self, plan: CounterPlan, owner: str, claim: str, *, is_dry_run: bool) -> Awaitable[SlotClaim]:
        """Claim the lowest free slot of the owner with this uid. A repeated claim gets the same slot.

        A dry run claims nothing, and gets the slot that it would have got.
        """
        ...

    async def learn(
        self,
        plan: CounterPlan,
        owner: str,
        replicas: int,
        held: Sequence[HeldSlot] | None,
        age_us: int,
        *,
        is_new: bool = False,
    ) -> None:
        """Tell the store how many slots an owner has and, by `held`, which of them its Pods carry: after a list.

        A slot that is not `held` is free, unless it was claimed less than `age_us` ago: its Pod may still be made.
        Without `held`, only the number is learned. Only with `is_new` is an unknown owner known from then on: it may
        have been lost since somebody asked, with claims that no list shows yet.
        """
        ...

    async def free(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        """Free the slots of Pods that have ended; a slot that another claim has got since then stays.

        For each of them the owner is taken to have a slot less, until its number is learned again: it may have shrunk.
        """
        ...

    async def confirm(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        """Take slots again for the claims that have got them, where the store has lost that. A taken one stays.

        An unknown owner stays unknown, and has these slots once it is learned.
        """
        ...

    async def doubt(self, plan: CounterPlan, owner: str) -> None:
        """Take an owner for unknown until it is learned again, as others may have got slots of it; its claims stay."""
        ...

    async def forget(self, plan: CounterPlan, owner: str) -> None:
        """Forget an owner that no longer exists."""
        ...


class OwnedPods(Struct, frozen=True):
    """The slots that the living Pods of an owner carry."""

    held: tuple[HeldSlot, ...]
    pods: int
    """How many there are, also without a slot."""


class SlotOwners(Protocol):
    """Owners and their Pods in the cluster, read afresh. None without an answer."""

    async def read_replicas(self, owner: SlotOwner) -> int | None:
        """Return how many Pods the owner runs at once; 0 for one that is gone, or is another one of its name."""
        ...

    async def list_held(self, owner: SlotOwner) -> OwnedPods | None:
        """Return the slots of its Pods that have neither ended nor begun to end."""
        ...
