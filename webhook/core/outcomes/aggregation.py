"""Sums of pushed outcomes by service, breaker generation and slot of 100 ms; outcomes with a Pod uid stay separate."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.outcomes.report import Pushed
from webhook.core.quota import CounterPlan

SLOT_US = 100_000
"""The shortest interval of a policy. Slots are aligned like intervals: an interval of 1s contains ten whole slots."""

MOST_WAITING = 20_000
"""Two batches of outcomes with Pod uids, or all services of the largest policy for 400 ms."""


class Sum(Struct, gc=False):
    """Sum of the outcomes of requests within one slot, or one outcome with a Pod's `uid`."""

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
        """Return the sum with its age, measured from the middle of its slot.

        The store has its own clock, so its intervals may begin anywhere in a slot. Measured from the middle, no outcome
        is more than 50 ms off its arrival; if the clocks agree within 50 ms, all of them count in their interval.
        """
        age_us = max(0, now_us - self.slot * SLOT_US - SLOT_US // 2)
        return Outcomes(self.succeeded, self.failed, self.latency_us, self.uid, self.generation, age_us)


class PendingOutcomes(NamedTuple):
    """Pending sums of one service, in order of arrival."""

    plan: CounterPlan
    sums: list[Sum]


class Dropped(NamedTuple):
    """Number of outcomes dropped for a service."""

    service: str
    outcomes: int


class _Service(NamedTuple):
    """Pending sums of one service: all in order of arrival, and by slot and generation those that can still grow."""

    plan: CounterPlan
    order: deque[Sum]
    summed: dict[tuple[int, int | None], Sum]


class Sums:
    """Pending sums of all services. Beyond `most` sums, the service with the most pending sums loses its oldest.

    So a push never costs another service a sum if that one has at most as many pending sums as the pushing service, or
    at most an even share of `most`.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str], _Service] = {}
        self._count = 0
        self._alike: dict[int, dict[tuple[str, str], _Service]] = {}
        """Services by their number of pending sums, to find one with the most."""

    def __len__(self) -> int:
        return self._count

    def add(self, plan: CounterPlan, outcomes: Sequence[Pushed], at_us: int) -> list[Dropped]:
        """Add outcomes of one service that arrived at `at_us`; return what was dropped to make room."""
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
        """Remove and return the oldest sums of each service, at most `most_each`, of slots before `before_slot`."""
        taken = [
            PendingOutcomes(service.plan, self._pop(service, most_each, before_slot))
            for service in tuple(self._waiting.values())
        ]
        return [waiting for waiting in taken if waiting.sums]

    def take_of(self, plan: CounterPlan) -> list[Sum]:
        """Remove and return all sums of one service."""
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
        """Update the counts after a service's pending sums changed in number by `by`."""
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
