"""RedisTicker: the passage of time, each second: due transitions of all breakers, and signs of lost data.

A service at rest is not ticked: its breaker is CLOSED and no interval runs, so that only a call can change it. One
operation compares the stored state of many such services with the state that their last tick left.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import is_
from typing import NamedTuple

from webhook.adapters.redis_store import codec, error_classes, operations
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.breaker_ledger import RedisBreakerLedger
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.plans import PlanCache, PreparedPlan
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.records import ComparisonAnswer, TickAnswer
from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import CounterPlan
from webhook.errors import StoreFailure, StoreFault, StoreUnavailableError
from webhook.ports import StoreReports
from webhook.support.condition import Condition

_AWAY = frozenset({StoreFault.UNREACHABLE, StoreFault.TIMEOUT, StoreFault.FAILOVER})
_SERVICES_PER_COMPARISON_MAX = 100
"""Redis serves no other client meanwhile."""


class _Rest(NamedTuple):
    """A service at rest, as its last tick left it. Times are the store's."""

    planned: PreparedPlan
    view: BreakerView | None
    born_us: int
    charged_us: int
    ticked_us: int
    fingerprint: str


class RedisTicker:
    """`on_missed` receives each plan that a tick did not reach."""

    def __init__(  # noqa: PLR0913, PLR0917  it updates the caches of all parts of a store
        self,
        transport: Transport,
        plans: PlanCache,
        lanes: Lanes,
        breakers: RedisBreakerLedger,
        cache: BreakerCache,
        losses: LossDetector,
        reports: StoreReports,
        on_missed: Callable[[CounterPlan], None],
    ) -> None:
        self._transport = transport
        self._plans = plans
        self._lanes = lanes
        self._breakers = breakers
        self._cache = cache
        self._losses = losses
        self._on_missed = on_missed
        self._resting: dict[int, _Rest] = {}
        """By the identity of the plan, which the entry keeps."""
        self._kept: tuple[CounterPlan, ...] = ()
        self._unnamed = Condition(
            reports.report_single,
            lambda _: None,
            on_changed=lambda _, failure: reports.report_single(failure),
            key=error_classes.fault_of,
        )
        """The servers do not report their run_id. If they answer all the same, losses go unnoticed."""

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        """Return the transitions of a round; StoreUnavailableError if there are none and a service was not reached."""
        self._keep(tuple(plans))
        moving, faults = await self._compare(plans)
        ticked = await asyncio.gather(*(self._tick(plan) for plan in moving), return_exceptions=True)
        for plan, fault in zip(moving, ticked, strict=True):
            if fault is not None:
                self._on_missed(plan)
                faults.append(fault)
        try:
            self._losses.record_histories(await error_classes.translated(self._transport.ask_histories()))
        except StoreUnavailableError as error:
            if not faults:  # otherwise the store is away, which its lanes report
                self._unnamed.enter(_describe_unnamed(error.failure))
            faults.append(error)
        else:
            self._unnamed.leave()
        self._lanes.drop_moved()
        moves = self._cache.take_unreported()
        if faults and not moves:
            raise faults[0]
        return moves  # on a Cluster, those of the services whose node answers

    def _keep(self, plans: tuple[CounterPlan, ...]) -> None:
        """Forget data of other plans, unless the plans are those of the last tick."""
        if len(plans) == len(self._kept) and all(map(is_, plans, self._kept)):
            return
        self._kept = plans
        self._plans.keep(plans)
        self._losses.keep(self._plans.prepare(plan).keys.home for plan in plans)
        self._cache.keep(plans)
        self._resting = {id(plan): rest for plan in plans if (rest := self._find_rest(plan)) is not None}

    def _find_rest(self, plan: CounterPlan) -> _Rest | None:
        rest = self._resting.get(id(plan))
        return rest if rest is not None and rest.planned.plan is plan else None

    async def _compare(self, plans: Sequence[CounterPlan]) -> tuple[list[CounterPlan], list[BaseException]]:
        """Return the plans to tick, and the errors of those that were not reached."""
        rests = [self._find_rest(plan) for plan in plans]
        moving = [plan for plan, rest in zip(plans, rests, strict=True) if rest is None]
        resting = [rest for rest in rests if rest is not None]
        faults: list[BaseException] = []
        for first in range(0, len(resting), _SERVICES_PER_COMPARISON_MAX):
            groups = self._group_by_call(resting[first : first + _SERVICES_PER_COMPARISON_MAX])
            answers = await asyncio.gather(*map(self._compare_group, groups), return_exceptions=True)
            for group, answer in zip(groups, answers, strict=True):
                if isinstance(answer, BaseException):
                    faults.append(answer)
                    for rest in group:
                        self._on_missed(rest.planned.plan)
                else:
                    moving += self._plans_to_tick(group, answer)
        wanted = {id(plan) for plan in moving}
        return [plan for plan in plans if id(plan) in wanted], faults  # breakerGuard counts in the policy's order

    def _group_by_call(self, resting: list[_Rest]) -> list[list[_Rest]]:
        """Return what one operation may compare: on a Cluster, the services of one tag."""
        if not self._transport.one_tag_a_call:
            return [resting]
        by_tag: dict[str, list[_Rest]] = {}
        for rest in resting:
            by_tag.setdefault(rest.planned.plan.tag, []).append(rest)
        return [*by_tag.values()]

    async def _compare_group(self, group: Sequence[_Rest]) -> ComparisonAnswer:
        ticked_us = max(rest.ticked_us for rest in group)
        services, fingerprints = [rest.planned for rest in group], [rest.fingerprint for rest in group]
        return ComparisonAnswer(*await self._lanes.ask_patiently(operations.compare(services, ticked_us, fingerprints)))

    def _plans_to_tick(self, group: Sequence[_Rest], answer: ComparisonAnswer) -> list[CounterPlan]:
        """Return the plans to tick; the others have their last answer again."""
        changed, moving = {*answer.positions}, []
        for position, rest in enumerate(group, 1):
            plan = rest.planned.plan
            if position not in changed:
                self._learn(rest, answer.now_us)
            if position in changed or self._cache.find_lost(plan.key) is not None:
                moving.append(plan)
        return moving

    def _learn(self, rest: _Rest, now_us: int) -> None:
        planned = rest.planned
        if rest.view is not None and self._cache.get(planned.plan.key) is not rest.view:
            self._cache.learn_answer(planned.plan.key, rest.view, now_us)
        self._see(planned, rest.born_us, now_us, rest.charged_us)

    async def _tick(self, plan: CounterPlan) -> None:
        """Advance a service's breaker to the present, and restore what Redis has lost of it."""
        planned = self._plans.prepare(plan)
        self._resting.pop(id(plan), None)
        answer = TickAnswer(*await self._lanes.ask_patiently(operations.tick(planned)))
        self._cache.add_unreported(self._breakers.learn_moves(plan, answer))
        self._see(planned, answer.born_us, answer.now_us, answer.charged_us)
        if isinstance(answer.fingerprint, str):
            times = answer.born_us, answer.charged_us, answer.now_us
            self._resting[id(plan)] = _Rest(planned, codec.decode_view(answer.view), *times, answer.fingerprint)
        await self._breakers.repropose_lost(plan)

    def _see(self, planned: PreparedPlan, born_us: int, now_us: int, charged_us: int) -> None:
        if planned.longest_us:
            counts_until_us = charged_us + planned.longest_us if born_us else None
            self._losses.record_birth(planned.keys.home, born_us, now_us, counts_until_us)


def _describe_unnamed(failure: StoreFailure) -> StoreFailure:
    """Return the report of servers without a run_id; a server that does not answer is recognized by its next run_id."""
    if failure.fault in _AWAY:
        return failure
    text = f"the server process is not known, so that a loss of data goes unnoticed: {failure.text}"
    return StoreFailure(text, failure.fault)
