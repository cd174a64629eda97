"""Owner slots: which slots of one owner are taken, by which claims. The law of every slot store."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct


class _Taken(Struct, frozen=True, gc=False):
    claim: str
    claimed_us: int


@dataclass(slots=True)
class OwnerSlots:
    """The slots of one owner. `replicas`: how many it has, as far as is known; more may be taken for a while.

    Of an owner that is not known slots may be taken, but there may be others, so that none is free.
    """

    replicas: int = 0
    is_known: bool = False
    _taken: dict[int, _Taken] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _lowest: int = 1
    """No lower slot is free."""

    def find(self, claim: str) -> int:
        """Return the slot of a claim, 0 for none."""
        return self._slots.get(claim, 0)

    def find_free(self) -> int:
        """Return the lowest free slot."""
        while self._lowest in self._taken:
            self._lowest += 1
        return self._lowest

    def take(self, slot: int, claim: str, now_us: int) -> None:
        """Give a slot to a claim: one that had it before loses it."""
        self._drop(slot)
        self._taken[slot] = _Taken(claim, now_us)
        self._slots[claim] = slot

    def keep(self, held: Iterable[tuple[int, str]], since_us: int, now_us: int) -> None:
        """Free the slots that are not `held`, unless they were claimed after `since_us`."""
        carried = dict(held)
        for slot in [slot for slot, taken in self._taken.items() if taken.claimed_us <= since_us]:
            if slot not in carried:
                self._drop(slot)
        for slot, claim in carried.items():
            self.take(slot, claim, now_us)

    def confirm(self, slot: int, claim: str, now_us: int) -> None:
        """Take a slot that a Pod carries, unless a claim has it."""
        if slot not in self._taken:
            self.take(slot, claim, now_us)

    def free(self, slot: int, claim: str) -> None:
        """Free the slot of a claim, unless another one has it. The owner may have one slot less from then on."""
        taken = self._taken.get(slot)
        if taken is not None and taken.claim == claim:
            self._drop(slot)
            self.replicas = max(0, self.replicas - 1)

    def _drop(self, slot: int) -> None:
        taken = self._taken.pop(slot, None)
        if taken is not None:
            self._slots.pop(taken.claim, None)
            self._lowest = min(self._lowest, slot)
