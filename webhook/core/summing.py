"""Sums pushed outcomes by service, generation and 100 ms until they are told; those of single Pods stay single."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from webhook.core.outcomes import Outcomes
from webhook.core.pushed import Pushed
from webhook.core.quota import CounterPlan

SLOT_US = 100_000
"""The shortest interval that a policy may have. Slots are aligned as intervals are: one of 1s holds ten whole ones."""

MOST_WAITING = 20_000
"""Some 8 MB. Two batches of outcomes of single Pods, or all services of the largest policy for 400 ms."""


class Sum(Struct, gc=False):
    """How some requests fared that came within one slot, or one Pod."""

    slot: int
    generation: int | None
    uid: str | None = None
    succeeded: int = 0
    failed: int = 0
    latency_us: int = 0

    @property
    def count(self) -> int:
        return self.succeeded + self.failed

    def outcomes(self, now_us: int) -> Outcomes:
        """Return it with its age: that of its slot's middle.

        A store goes by a clock of its own, whose intervals may begin anywhere in a slot. From the middle nothing counts
        more than 50 ms from when it came; where the clocks agree to 50 ms, all of it counts in its interval.
        """
        age_us = max(0, now_us - self.slot * SLOT_US - SLOT_US // 2)
        return Outcomes(self.succeeded, self.failed, self.latency_us, self.uid, self.generation, age_us)


class Waiting(NamedTuple):
    """What is to be told of one service, in its order."""

    plan: CounterPlan
    sums: list[Sum]


class Dropped(NamedTuple):
    """So many outcomes of a service."""

    service: str
    outcomes: int


class Sums:
    """What was pushed and not told yet, oldest first. Beyond `most` sums the oldest are dropped."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[object, tuple[CounterPlan, Sum]] = {}
        self._singles = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, plan: CounterPlan, outcomes: Sequence[Pushed], at_us: int) -> list[Dropped]:
        """Take outcomes of a service that came at one moment; return what had to be dropped for them."""
        waiting, key, slot = self._waiting, plan.key, at_us // SLOT_US
        for outcome in outcomes:
            if outcome.uid is None:
                place: object = (key, slot, outcome.generation)
            else:
                self._singles += 1
                place = self._singles
            found = waiting.get(place)
            if found is None:
                found = waiting[place] = (plan, Sum(slot, outcome.generation, outcome.uid))
            of = found[1]
            if outcome.ok:
                of.succeeded += 1
            else:
                of.failed += 1
            of.latency_us += round(outcome.latency * 1_000_000)
        return [self._drop_oldest() for _ in range(len(waiting) - self._most)]

    def take(self) -> list[Waiting]:
        """Hand over all there is, by service; its order within a service is that of coming."""
        taken, self._waiting = self._waiting, {}
        by_service: dict[tuple[str, str], Waiting] = {}
        for plan, of in taken.values():
            by_service.setdefault(plan.key, Waiting(plan, [])).sums.append(of)
        return list(by_service.values())

    def _drop_oldest(self) -> Dropped:
        plan, of = self._waiting.pop(next(iter(self._waiting)))
        return Dropped(plan.service, of.count)
