"""RedisStore: the counters in Redis, shared by all replicas, composed of operations, lanes and a transport."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from webhook.adapters.redis_store import codec, error_classes, operations
from webhook.adapters.redis_store.announcements import AnnouncementListener
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.breaker_ledger import RedisBreakerLedger
from webhook.adapters.redis_store.keys import all_of, channel_of
from webhook.adapters.redis_store.lane_group import Lanes
from webhook.adapters.redis_store.loss_detector import LossDetector, SettledMark
from webhook.adapters.redis_store.plans import PlanCache, PreparedPlan
from webhook.adapters.redis_store.pod_ledger import RedisPodLedger, split_scopes
from webhook.adapters.redis_store.queue_index import RedisQueueIndex
from webhook.adapters.redis_store.script_caller import ScriptCaller
from webhook.adapters.redis_store.server_status import server_status
from webhook.adapters.redis_store.slots import RedisSlots
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.adapters.redis_store.ticker import RedisTicker
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.records import AcquireAnswer, SnapshotAnswer
from webhook.core.breaker import BreakerView, Transition
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.quota import (
    Acquire,
    AcquireGroup,
    Booking,
    Cost,
    CounterPlan,
    Holder,
    PoolPod,
    Receipt,
    Seen,
    ServiceSnapshot,
    Sighting,
    UnseenPod,
    Use,
    sum_costs,
)
from webhook.core.reporting.status_parts import StoreServers
from webhook.ports import Clock, StoreReports

_OWN = Holder.SERVICE, Holder.STANDING
_BORN = AcquireAnswer._fields.index("born_us")

_Facts = tuple[PreparedPlan, int, BreakerView | None, bool, int]
"""Facts of an answer: plan, time, breaker if Redis has written it, whether it charged, and when its counters began."""


class RedisStore:
    """`ports.SharedStore`, `PodLedger` and `BreakerLedger` of one cluster.

    Time is Redis' own; a replay has its own time (`time_us`). `late_us`: how long breakers wait for outcomes of an
    interval that has ended. `on_loss` is called when acknowledged writes may be lost: another server process answers,
    or a counter was re-created. `announcement_reports` receives failures of `follow`, by default `reports`.
    """

    def __init__(  # noqa: PLR0913  most are optional
        self,
        transport: Transport,
        cluster: str,
        clock: Clock,
        reports: StoreReports,
        *,
        deadline_seconds: float,
        late_us: int = 0,
        time_us: Callable[[], int] | None = None,
        on_loss: Callable[[], None] = lambda: None,
        announcement_reports: StoreReports | None = None,
    ) -> None:
        self.on_loss = on_loss
        self.on_missed: Callable[[CounterPlan], None] = lambda _: None
        """Called with each plan that a tick did not reach."""
        self._transport = transport
        self._cluster = cluster
        self._clock = StoreClock(clock, time_us)
        channel = channel_of(cluster)
        self._plans = PlanCache(cluster, channel if time_us is None else "")  # a replay publishes nothing
        self._cache = BreakerCache()
        self.losses = LossDetector(self._on_loss, transport.lane)
        self.settled = SettledMark(self._clock, self.losses)
        caller = ScriptCaller(transport, cluster, self._clock, self._cache, self.settled, late_us)
        self._lanes = Lanes(transport.lane, caller, deadline_seconds, reports, self._cache.add_late)
        self._pods = RedisPodLedger(self._plans, self._lanes)
        self.queue = RedisQueueIndex(self._plans, self._lanes)
        self.slots = RedisSlots(self._plans, self._lanes)
        self._learned: _Facts | None = None
        """Facts of the last answer; learned again only when they change."""
        self._breakers = RedisBreakerLedger(self._plans, self._lanes, self._cache, self._clock)
        self._announcements = AnnouncementListener(
            transport.dial, channel, self._cache.on_announced, announcement_reports or reports
        )
        self._ticker = RedisTicker(
            transport, self._plans, self._lanes, self._breakers, self._cache, self.losses, reports, self._on_missed
        )
        transport.on_connected = self.losses.on_connected if time_us is None else None

    async def acquire(self, request: Acquire) -> Receipt:
        plan = request.plan
        planned = self._plans.prepare(plan)
        result = await self._lanes.ask(operations.acquire(planned, request))
        receipt = codec.decode_receipt(plan, result, request.cost)
        is_written = not (receipt.repeated or request.peek or request.resize_from is not None)
        facts = planned, receipt.at_us, receipt.breaker if is_written else None, receipt.charged, result[_BORN]
        if facts != self._learned:
            self._learned = facts
            self._learn(facts)
        return receipt

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        planned = self._plans.prepare(request.plan)
        result = await self._lanes.ask_patiently(operations.acquire_group(planned, request))
        receipt = codec.decode_receipt(request.plan, result, sum_costs(member.cost for member in request.members))
        view = None if receipt.repeated else receipt.breaker
        self._learn((planned, receipt.at_us, view, receipt.charged, result[_BORN]))
        return receipt

    async def find_charged_us(self, request: Acquire) -> int | None:
        plan = request.plan
        asked = operations.find_charged_us(self._plans.prepare(plan), request)
        (charged_us,) = await self._lanes.get_lane(plan.tag).ask(asked)
        return None if charged_us is False else int(charged_us)

    async def withdraw(self, request: Acquire, charged_us: int | None) -> bool:
        asked = operations.withdraw(self._plans.prepare(request.plan), request, charged_us)
        (withdrawn,) = await self._lanes.ask_first(asked)
        return bool(withdrawn)

    async def count_settled_replicas(self, plan: CounterPlan, *, afresh: bool) -> int:
        asked = operations.count_settled(self._plans.prepare(plan), self.settled.replica, afresh=afresh)
        (count,) = await self._lanes.ask_patiently(asked)
        return int(count)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        scopes, planned = [""], self._plans.prepare(plan)
        if plan.per_namespace:
            (counting,) = await self._lanes.ask_patiently(operations.list_counting_scopes(planned))
            live = await self.list_scopes(plan) if plan.standing else ()
            scopes = sorted({*counting, *live, *([namespace] if namespace else [])})
        own: dict[str, tuple[Use, ...]] = {}
        for some in split_scopes(scopes):
            found = SnapshotAnswer(*await self._lanes.ask_patiently(operations.snapshot(planned, some)))
            by_scope = zip(some, found.figures, strict=True)
            own |= {scope: codec.decode_uses(plan, _OWN, figures) for scope, figures in by_scope}
        self._breakers.learn(plan, None, found.now_us)
        return ServiceSnapshot(
            at_us=found.now_us,
            uses=own if plan.windows or plan.standing else {},
            breaker=codec.decode_view(found.view),
            pool=codec.decode_pool_uses(plan, found.pool, found.guarantees),
            is_standing_known=found.is_standing_known,
            is_pool_standing_known=found.is_pool_standing_known if plan.pool_standing is not None else None,
        )

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        return await self._ticker.tick(plans)

    async def follow(self) -> None:
        """Receive transitions as they are published, until cancelled. Without it, only each tick finds them."""
        await self._announcements.follow()

    def now_us(self) -> int:
        """Return the store's time, estimated between its answers."""
        return self._clock.now_us()

    async def servers(self) -> StoreServers:
        """Return the status of the servers, for operators."""
        return await server_status(self._transport)

    async def check_lanes(self, plans: Sequence[CounterPlan]) -> None:
        """Read something from each node of these services, so that the reports say whether it responds.

        For a process that asks for nothing else; other plans are forgotten. Sentinels are asked for the primary, too.
        """
        self._plans.keep(plans)
        by_lane = {self._transport.lane(plan.tag): plan for plan in plans}
        asked = [
            operations.find_charged_us(self._plans.prepare(plan), Acquire(plan, "", "", {}, "", peek=True))
            for plan in by_lane.values()
        ]
        calls = map(self._lanes.ask_patiently, asked)
        await asyncio.gather(*calls, self._transport.ask_histories(), return_exceptions=True)
        self._lanes.drop_moved()

    async def ping(self) -> None:
        """Return if all servers answer; StoreUnavailableError otherwise."""
        await error_classes.translated(self._transport.ping())

    async def close(self) -> None:
        await self._lanes.close()
        await self._transport.close()

    async def forget(self) -> int:
        """Delete all keys of this cluster, at the end of a replay; return how many there were."""
        return await error_classes.translated(self._transport.forget(all_of(self._cluster)))

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        return await self._pods.refund(plan, uid)

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        return await self._pods.book(plan, bookings)

    async def observe(self, plan: CounterPlan, sightings: Sequence[Sighting]) -> Sequence[Seen]:
        return await self._pods.observe(plan, sightings)

    async def list_overdue(self, plan: CounterPlan, age_us: int, most: int) -> Sequence[UnseenPod]:
        return await self._pods.list_overdue(plan, age_us, most)

    async def stop_waiting(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        await self._pods.stop_waiting(plan, uids)

    async def list_scopes(self, plan: CounterPlan) -> Sequence[str]:
        return await self._pods.list_scopes(plan)

    async def list_live(self, plan: CounterPlan, scope: str, after: str = "") -> tuple[Mapping[str, Cost], str]:
        return await self._pods.list_live(plan, scope, after)

    async def mark_complete(self, plan: CounterPlan, scopes: Sequence[str]) -> None:
        await self._pods.mark_complete(plan, scopes)

    async def list_pool_live(self, plan: CounterPlan, after: str = "") -> tuple[Sequence[PoolPod], str]:
        return await self._pods.list_pool_live(plan, after)

    async def mark_pool_complete(self, plan: CounterPlan) -> None:
        await self._pods.mark_pool_complete(plan)

    async def drop_pool_pods(self, plan: CounterPlan, pods: Sequence[PoolPod]) -> None:
        await self._pods.drop_pool_pods(plan, pods)

    async def reset(self, plan: CounterPlan, at_us: int, seconds: int | None = None) -> bool:
        return await self._pods.reset(plan, at_us, seconds)

    def find_known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._breakers.find_known_breaker(plan)

    def find_last_breaker(self, plan: CounterPlan) -> BreakerView | None:
        return self._breakers.find_last_breaker(plan)

    async def record_outcomes(self, plan: CounterPlan, outcomes: Sequence[Outcomes]) -> Sequence[Transition]:
        return await self._breakers.record_outcomes(plan, outcomes)

    async def record_starts(
        self, plan: CounterPlan, starts: Sequence[Start]
    ) -> tuple[Sequence[Settlement], Sequence[Transition]]:
        return await self._breakers.record_starts(plan, starts)

    async def suppress_quota_events(self, plan: CounterPlan, sources: Sequence[str]) -> None:
        await self._breakers.suppress_quota_events(plan, sources)

    async def apply_override(self, plan: CounterPlan, reset_at_us: int = 0) -> Sequence[Transition]:
        return await self._breakers.apply_override(plan, reset_at_us)

    async def propose(self, plan: CounterPlan, view: BreakerView) -> None:
        await self._breakers.propose(plan, view)

    def _learn(self, facts: _Facts) -> None:
        planned, at_us, view, is_charged, born_us = facts
        self._breakers.learn(planned.plan, view, at_us)
        if planned.longest_us:
            counts_until_us = at_us + planned.longest_us if is_charged else None
            self.losses.record_birth(planned.keys.home, born_us, at_us, counts_until_us)

    def _on_missed(self, plan: CounterPlan) -> None:
        self.on_missed(plan)  # set after this store was made

    def _on_loss(self) -> None:
        self._announcements.reconnect()
        self.on_loss()  # set after this store was made
