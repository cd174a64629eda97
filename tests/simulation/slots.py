"""Slots of one workload: servers claim them twice, answers are lost, and the controller tells what it sees, late.

At each step the store holds what a plain list of claims says: a claim keeps its slot, gets the lowest free one, and no
slot has two. Living Pods have distinct slots, as long as the cluster is seen within the age that corrections allow for.
"""

from dataclasses import dataclass

from tests.core.plans import plan_of
from tests.simulation.store_clock import call
from tests.simulation.world import SECOND_US, Fault, Simulation, World
from webhook.adapters.memory_slots import MemorySlots
from webhook.ports import HeldSlot

_PLAN = plan_of()
_OWNER = "owner"
_AGE_US = 60 * SECOND_US
"""A correction frees no claim that is younger. No Pod is created, and seen, later than that."""


@dataclass
class _Taken:
    slot: int
    claim: str
    at_us: int


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_us(self) -> int:
        return self._world.now_us


class Slots(Simulation):
    """`pods`: the slots of the living Pods, by their claims; `seen`: those that the controller has seen."""

    name = "slots"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.store = MemorySlots(_Clock(world))
        self.taken: list[_Taken] = []
        self.replicas = 0
        self.pods: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.gone: set[str] = set()
        self.claims = 0
        self.waiting: set[str] = set()
        """Claims whose servers wait for an answer."""
        self._pace_us = world.random.choice((100_000, 2 * SECOND_US))
        call(self.store.learn(_PLAN, _OWNER, 0, [], 0, is_new=True))
        for act in (self._create, self._correct):
            world.do_after(0, act)

    # --- servers and the API server ---

    def _create(self) -> None:
        draw = self.world.random
        self.claims += 1
        claim = f"c{self.claims}"
        self.waiting.add(claim)
        if len(self.pods) < 40:
            self.world.send(self._claim, claim, draw.random() < 0.1)
            self.world.do_after(SECOND_US, self._time_out, claim)
        self.world.do_after(draw.randrange(1, 2 * self._pace_us), self._create)

    def _time_out(self, claim: str) -> None:
        """Ask once more; then the Pod is not created."""
        if claim in self.waiting:
            self.world.send(self._claim, claim, False)  # noqa: FBT003  of the agenda
            self.world.do_after(SECOND_US, self.waiting.discard, claim)

    def _claim(self, claim: str, is_dry_run: bool) -> None:  # noqa: FBT001  of the agenda
        answer = call(self.store.claim(_PLAN, _OWNER, claim, is_dry_run=is_dry_run))
        known = [one.slot for one in self.taken if one.claim == claim]
        held = {one.slot for one in self.taken}
        expected = known[0] if known else next(slot for slot in range(1, 10**6) if slot not in held)
        assert answer.slot == expected, f"{claim} gets slot {answer.slot}, and not {expected}"
        assert answer.replicas == self.replicas, f"{answer.replicas} replicas, and not {self.replicas}"
        if is_dry_run:
            return
        if not known:
            self.taken.append(_Taken(expected, claim, self.world.now_us))
        self.world.send(self._answer, claim, answer.slot)

    def _answer(self, claim: str, slot: int) -> None:
        if claim in self.waiting:
            self.waiting.discard(claim)
            if self.world.random.random() < 0.9:
                self.world.do_after(self.world.random.randrange(5 * SECOND_US), self._persist, claim, slot)

    def _persist(self, claim: str, slot: int) -> None:
        self.pods[claim] = slot
        self.world.do_after(self.world.draw_delay_us(), self._see, claim)
        self.world.do_after(self.world.random.randrange(1, 100 * SECOND_US), self._end, claim)

    def _end(self, claim: str) -> None:
        del self.pods[claim]
        self.gone.add(claim)
        self.world.do_after(self.world.draw_delay_us(), self._see_end, claim)

    # --- the controller ---

    def _see(self, claim: str) -> None:
        if claim in self.pods:
            self.seen[claim] = self.pods[claim]
            if not self.world.strikes(Fault.LOSS, 0.1):
                self._confirm(claim, self.pods[claim])

    def _see_end(self, claim: str) -> None:
        slot = self.seen.pop(claim, 0)
        if slot and not self.world.strikes(Fault.CRASH, 0.1):  # else a correction frees it
            self._free(claim, slot)
            if self.world.strikes(Fault.DOUBLING, 0.2):  # sent again, because the answer is late
                self.world.do_after(self.world.draw_delay_us(), self._free, claim, slot)

    def _confirm(self, claim: str, slot: int) -> None:
        call(self.store.confirm(_PLAN, _OWNER, [HeldSlot(slot, claim)]))
        if slot not in {one.slot for one in self.taken}:
            self._take(slot, claim)

    def _free(self, claim: str, slot: int) -> None:
        call(self.store.free(_PLAN, _OWNER, [HeldSlot(slot, claim)]))
        left = [one for one in self.taken if (one.slot, one.claim) != (slot, claim)]
        if len(left) < len(self.taken):
            self.taken, self.replicas = left, max(0, self.replicas - 1)

    def _take(self, slot: int, claim: str) -> None:
        self.taken = [one for one in self.taken if slot != one.slot]
        self.taken.append(_Taken(slot, claim, self.world.now_us))

    def _correct(self) -> None:
        """Tell what the cluster shows; claims that are older and that no Pod holds are freed."""
        held = dict(self.seen)
        replicas = len(self.pods) + self.world.random.randrange(3)
        if self.world.random.random() < 0.5:
            call(self.store.learn(_PLAN, _OWNER, replicas, None, 0))
        else:
            slots = [HeldSlot(slot, claim) for claim, slot in held.items()]
            call(self.store.learn(_PLAN, _OWNER, replicas, slots, _AGE_US))
            young_us = self.world.now_us - _AGE_US
            carried = set(held.values())
            self.taken = [one for one in self.taken if one.at_us > young_us or one.slot in carried]
            for claim, slot in held.items():
                self._take(slot, claim)
        self.replicas = replicas
        self.world.do_after(self.world.random.choice((1, 20, 70)) * SECOND_US, self._correct)

    # --- what must hold ---

    def check(self) -> None:
        slots = list(self.pods.values())
        assert len(slots) == len(set(slots)), f"two Pods have one slot: {self.pods}"

    def settle(self) -> None:
        owner = self.store._owners[_PLAN.service, _OWNER]
        expected = {one.slot: one.claim for one in self.taken}
        assert {slot: taken.claim for slot, taken in owner._taken.items()} == expected
