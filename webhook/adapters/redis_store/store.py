"""`ports.CounterStore` on Redis: every operation is one in a call of the script, whose results are told as values."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from redis.exceptions import RedisError, ResponseError

from webhook.adapters.redis_store import codec, error_classes
from webhook.adapters.redis_store.announcements import Announcement, AnnouncementListener
from webhook.adapters.redis_store.breakers import BreakerQuestions
from webhook.adapters.redis_store.keys import PlanKeys, all_of, channel_of
from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.micro_batcher import Lane, Probe, ScriptOperation
from webhook.adapters.redis_store.plans import PlanCache, PreparedPlan
from webhook.adapters.redis_store.pods import POD_STRINGS, own_keys
from webhook.adapters.redis_store.transport.topology import Transport
from webhook.core.breaker import BreakerView, Transition
from webhook.core.quota import Acquire, CounterPlan, Holder, Receipt, ServiceSnapshot
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, WatchReports

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class RedisStore(BreakerQuestions):
    """Counters of one cluster. Time is Redis' own, but for a replay, whose clock only it knows (`time_us`).

    `late_us`: how long breakers wait for outcomes of an interval that has ended.
    `on_loss` is told when acknowledged writes may be lost: another process answers, or a counter began anew.
    `hears` is told how `follow` fares, `reports` where it is not given.
    """

    def __init__(  # noqa: PLR0913  what it is made of, most of it optional
        self,
        link: Transport,
        cluster: str,
        clock: Clock,
        reports: WatchReports,
        *,
        deadline_seconds: float,
        late_us: int = 0,
        time_us: Callable[[], int] | None = None,
        on_loss: Callable[[], None] = lambda: None,
        hears: WatchReports | None = None,
    ) -> None:
        self._link = link
        self._cluster = cluster
        # A replay has a cluster of its own, of which nobody else should hear.
        super().__init__(PlanCache(cluster, channel_of(cluster) if time_us is None else ""), self.now_us)
        self._late_us = late_us
        self._losses = LossDetector(self._lost)
        self._announcements = AnnouncementListener(link.dial, channel_of(cluster), self._announced, hears or reports)
        self._clock = clock
        self._reports = reports
        self._deadline_seconds = deadline_seconds
        self._time_us = time_us
        self.on_loss = on_loss
        link.on_connected = self._losses.connected if time_us is None else None
        self._name = secrets.token_hex(4)
        self.owes: Callable[[str], bool] | None = None
        """Says of a tag whether this replica owes any booking under it; None for who admits nobody."""
        self.on_missed: Callable[[CounterPlan], None] = lambda _: None
        """Is told for which services time could not be let pass."""
        self._lanes: dict[str, Lane] = {}
        self._ahead_us: int | None = None
        """How far Redis' clock is before ours, None until it was heard."""
        self._nameless = ""
        """Why nobody says which process answers."""

    async def acquire(self, request: Acquire) -> Receipt:
        plan = request.plan
        planned, scope = self._plans.of(plan), plan.scope_of(request.namespace)
        own = own_keys(plan, planned.keys, scope, request.uid)
        asked = ScriptOperation(plan, own, codec.packed_acquire(request, scope), POD_STRINGS)
        result = await self._lane(plan).ask(asked)
        receipt = codec.receipt(plan, result)
        if receipt.breaker is not None or self._ahead_us is None:
            is_written = not (receipt.repeated or request.peek or request.resize_from is not None)
            self._learn(plan, receipt.breaker if is_written else None, receipt.at_us)
        if planned.longest_us:
            counts_until_us = receipt.at_us + planned.longest_us if receipt.charged else None
            self._losses.seen(planned.keys.home, result[-1], receipt.at_us, counts_until_us)
        return receipt

    def book_later(self, _: Acquire) -> None:
        """Do nothing: `acquire` never raises UncountedError."""

    async def knows(self, plan: CounterPlan, uid: str) -> bool:
        record = self._plans.of(plan).keys.pod(uid)
        return bool(await self._lane(plan).ask(ScriptOperation(plan, (record,), ("record",), (0,))))

    async def others_settled(self, plan: CounterPlan, *, afresh: bool) -> int:
        (count,) = await self._ask(plan, ("others_settled", self._name, afresh))
        return int(count)

    async def snapshot(self, plan: CounterPlan, namespace: str = "") -> ServiceSnapshot:
        scopes, keys = [""], self._plans.of(plan).keys
        if plan.per_namespace:
            (counting,) = await self._ask(plan, ("scopes",))
            live = await self.scopes(plan) if plan.standing else ()
            scopes = sorted({*counting, *live, *([namespace] if namespace else [])})
        rings = [key for scope in scopes for key in _rings(plan, keys, scope)]
        now_us, figures, pool, view, is_known = await self._ask(plan, ("snapshot",), tuple(rings))
        self._learn(plan, None, now_us)
        own = {scope: codec.uses(plan, _OWN, found) for scope, found in zip(scopes, figures, strict=True)}
        limits_own = plan.windows or plan.standing
        pooled = codec.uses(plan, (Holder.POOL,), pool)
        return ServiceSnapshot(now_us, own if limits_own else {}, codec.breaker_view(view), pooled, is_known)

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        self._plans.keep(plans)
        self._losses.keep(self._plans.of(plan).keys.home for plan in plans)
        self._views.keep(plans)
        ticked = await asyncio.gather(*(self._tick(plan) for plan in plans), return_exceptions=True)
        faults = []
        for plan, fault in zip(plans, ticked, strict=True):
            if fault is not None:
                self.on_missed(plan)
                faults.append(fault)
        try:
            self._losses.answered(await _ours(self._link.run_ids()))
        except StoreUnavailableError as error:
            self._unnamed(str(error), is_told=bool(faults))
            faults.append(error)
        else:
            self._nameless = ""
        moves = self._take_untold()
        if faults and not moves:
            raise faults[0]
        return moves  # on a Cluster, those of the services whose node is there

    async def _tick(self, plan: CounterPlan) -> None:
        """Let time pass; tell Redis what it has lost of the breaker: it came back empty, or older."""
        *moving, born_us, charged_us = await self._ask(plan, ("tick",))
        self._untold += self._moved(plan, moving)
        planned, now_us = self._plans.of(plan), moving[-1]
        if planned.longest_us:
            self._losses.seen(planned.keys.home, born_us, now_us, charged_us + planned.longest_us if born_us else None)
        unheard = self._views.unheard(plan.key)
        if unheard is not None:
            await self.propose(plan, unheard)

    async def follow(self) -> None:
        """Hear of breakers as they move, until cancelled; without it they are known each second."""
        await self._announcements.follow()

    def now_us(self) -> int:
        """Return the store's time, as near as it is known here."""
        return self._time_us() if self._time_us else self._clock.now_us() + (self._ahead_us or 0)

    async def ping(self) -> None:
        """Make sure that somebody is there; StoreUnavailableError says why not."""
        await _ours(self._link.ping())

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
        await self._link.close()

    async def forget(self) -> None:
        """Delete all keys of this cluster: for a replay, which leaves nothing behind."""
        await _ours(self._link.forget(all_of(self._cluster)))

    def _unnamed(self, reason: str, *, is_told: bool) -> None:
        """Tell once that losses go unnoticed, unless the store is away, which is told by whoever asks it."""
        if not is_told and reason != self._nameless:
            self._nameless = reason
            unknown = "who answers is not known, a loss goes unnoticed"
            self._reports.on_trouble(f"{error_classes.SCRIPT}: {unknown}: {reason}")

    def _announced(self, told: Announcement) -> None:
        self._views.announced(told.key, told.view, told.at_us)

    def _lost(self) -> None:
        self._announcements.look_again()
        self.on_loss()  # which may be set after us

    def _learn(self, plan: CounterPlan, view: BreakerView | None, now_us: int) -> None:
        super()._learn(plan, view, now_us)
        if self._time_us is None:
            self._ahead_us = now_us - self._clock.now_us()

    def _lane(self, plan: CounterPlan) -> Lane:
        name = self._link.lane(plan.tag)
        lane = self._lanes.get(name)
        if lane is None:
            lane = Lane(self._send, self._probe_of(plan.tag), self._deadline_seconds, self._reports, self._late)
            self._lanes[name] = lane
        return lane

    def _probe_of(self, tag: str) -> Probe:
        """Return what finds out whether calls with a tag would succeed: it runs the script, and writes."""
        key = f"podgate:{{{tag}}}:v1:{self._cluster}:probe"
        argument = _encode((0, [], [], [("probe", 0, 1)], 0, 0))

        async def probe() -> None:
            (result,) = _decode(await self._link.run([key], argument))
            if isinstance(result, str):
                raise ResponseError(result)

        return probe

    async def _ask(
        self, plan: CounterPlan, request: Sequence[Any], keys: tuple[str, ...] = (), strings: tuple[int, ...] = ()
    ) -> Any:
        return await self._lane(plan).ask_patiently(ScriptOperation(plan, keys, request, strings))

    async def _send(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        """Carry operations out: in one call, or on a Cluster in one for each tag, at the same time."""
        if not self._link.one_tag_a_call:
            return await self._call(operations)
        by_tag: dict[str, list[int]] = {}
        for index, operation in enumerate(operations):
            by_tag.setdefault(operation.plan.tag, []).append(index)
        calls = [self._call([operations[index] for index in indices]) for indices in by_tag.values()]
        results: list[Any] = [None] * len(operations)
        for indices, answers in zip(by_tag.values(), await asyncio.gather(*calls), strict=True):
            for index, answer in zip(indices, answers, strict=True):
                results[index] = answer
        return results

    async def _call(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        keys: dict[str, int] = {}
        numbers: dict[int, int] = {}
        plans: list[Any] = []
        strings: dict[int, None] = {}
        packed = []
        for operation in operations:
            number = numbers.get(id(operation.plan))
            if number is None:
                number = numbers[id(operation.plan)] = len(plans) + 1
                plans.append(self._told(operation.plan, keys, strings))
            kind, *asked = operation.request
            own = [keys.setdefault(key, len(keys) + 1) for key in operation.keys]
            for position in operation.strings:
                strings[own[position]] = None
            packed.append((kind, number, *own, *asked))
        now_us = self._time_us() if self._time_us else False
        argument = _encode((now_us, plans, list(strings), packed, self._late_us, self._views.opened()))
        results: Sequence[Any] = _decode(await self._link.run(list(keys), argument))
        return results

    def _told(self, plan: CounterPlan, keys: dict[str, int], strings: dict[int, None]) -> tuple[Any, ...]:
        """Return a plan as a call has it; its keys are added to the call's."""
        planned = self._plans.of(plan)
        its = planned.keys
        named = its.home, its.ring, its.breaker, its.waits, its.live
        home, index, breaker, waits, live = [keys.setdefault(key, len(keys) + 1) for key in named]
        strings[breaker] = None
        is_counted, settled = self._views.counts(plan.key), self._settled(planned)
        return planned.packed, home, index, breaker, waits, live, len(its.pods) + 1, is_counted, settled

    def _settled(self, planned: PreparedPlan) -> tuple[str, int, int] | bool:
        """Return that this replica owes nothing now: its name, the moment, and when the home was born; or False.

        The moment is never later than the store's time of now, for an answer was on its way when it was taken.
        """
        if self.owes is None or self._ahead_us is None or self.owes(planned.plan.tag):
            return False
        now_us = self.now_us()
        return self._name, now_us, self._losses.born_us(planned.keys.home, now_us)


def _rings(plan: CounterPlan, keys: PlanKeys, scope: str) -> tuple[str, ...]:
    """Return what a service counts in, of itself: its ring, and its live Pods where they are limited."""
    ring = keys.ring_of(scope)
    return (ring, keys.live_of(scope)) if plan.standing else (ring,)


async def _ours(call: Awaitable[Any]) -> Any:
    """Await a call of the link; its errors become ours."""
    try:
        return await call
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailableError(error_classes.described(error)) from error


_OWN = Holder.SERVICE, Holder.STANDING
