"""Sums pushed outcomes by service, generation and 100 ms until they are told; those of single Pods stay single."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.outcome import Outcomes
from webhook.core.outcomes.report import Pushed
from webhook.core.quota import CounterPlan

SLOT_US = 100_000
"""The shortest interval that a policy may have. Slots are aligned as intervals are: one of 1s holds ten whole ones."""

MOST_WAITING = 20_000
"""Some 10 MB. Two batches of outcomes of single Pods, or all services of the largest policy for 400 ms."""


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


class PendingOutcomes(NamedTuple):
    """What is to be told of one service, in its order."""

    plan: CounterPlan
    sums: list[Sum]


class Dropped(NamedTuple):
    """So many outcomes of a service."""

    service: str
    outcomes: int


class _Service(NamedTuple):
    """What waits of one service: all of it in its order, and by slot and generation what more can be added to."""

    plan: CounterPlan
    order: deque[Sum]
    summed: dict[tuple[int, int | None], Sum]


class Sums:
    """What was pushed and not told yet. Beyond `most` sums the service that has the most waiting loses its oldest.

    So a push costs no other service any that has no more waiting than its own, or no more than an even share of `most`.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str], _Service] = {}
        self._count = 0
        self._alike: dict[int, dict[tuple[str, str], _Service]] = {}
        """By key who has so many sums waiting: of those with the most one must give."""

    def __len__(self) -> int:
        return self._count

    def add(self, plan: CounterPlan, outcomes: Sequence[Pushed], at_us: int) -> list[Dropped]:
        """Take outcomes of a service that came at one moment; return what of which service was dropped for them."""
        slot, service = at_us // SLOT_US, self._waiting.get(plan.key)
        if service is None:
            service = self._waiting[plan.key] = _Service(plan, deque(), {})
        for outcome in outcomes:
            of = service.summed.get((slot, outcome.generation)) if outcome.uid is None else None
            if of is None:
                of = Sum(slot, outcome.generation, outcome.uid)
                self._append(service, of)
            if outcome.ok:
                of.succeeded += 1
            else:
                of.failed += 1
            of.latency_us += round(outcome.latency * 1_000_000)
        return [self._drop(service) for _ in range(self._count - self._most)]

    def take(self, most_each: int = MOST_WAITING, before_slot: int | None = None) -> list[PendingOutcomes]:
        """Hand over the oldest of each service, in the order of coming; the rest, and later slots, wait on."""
        taken = [
            PendingOutcomes(service.plan, self._pop(service, most_each, before_slot))
            for service in tuple(self._waiting.values())
        ]
        return [waiting for waiting in taken if waiting.sums]

    def take_of(self, plan: CounterPlan) -> list[Sum]:
        """Hand over all there is of one service."""
        service = self._waiting.get(plan.key)
        return [] if service is None else self._pop(service, MOST_WAITING, None)

    def _append(self, service: _Service, of: Sum) -> None:
        service.order.append(of)
        if of.uid is None:
            service.summed[of.slot, of.generation] = of
        self._resized(service, 1)

    def _pop(self, service: _Service, most: int, before_slot: int | None) -> list[Sum]:
        order, popped = service.order, list[Sum]()
        while order and len(popped) < most and (before_slot is None or order[0].slot < before_slot):
            of = order.popleft()
            popped.append(of)
            if of.uid is None:
                del service.summed[of.slot, of.generation]
        if popped:
            self._resized(service, -len(popped))
        return popped

    def _resized(self, service: _Service, by: int) -> None:
        """Note that a service has so many more sums waiting, or fewer."""
        key, count = service.plan.key, len(service.order)
        self._count += by
        if count != by:
            alike = self._alike[count - by]
            del alike[key]
            if not alike:
                del self._alike[count - by]
        if count:
            self._alike.setdefault(count, {})[key] = service
        else:
            del self._waiting[key]

    def _drop(self, pusher: _Service) -> Dropped:
        most = max(self._alike)
        service = pusher if len(pusher.order) == most else next(iter(self._alike[most].values()))
        [of] = self._pop(service, 1, None)
        return Dropped(service.plan.service, of.count)
