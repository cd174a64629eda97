"""Settles up with a store that is back: books what was admitted without it, gives back what it did for nobody.

A round goes through the services that are not settled; one that the store will not answer for holds up no other. While
nothing comes of it the pauses double, and differ from replica to replica; bookings travel by 64, with a pause between.

A tag is settled when all that this replica owes under it is booked, and every other replica has shown since then that
it owes nothing either, or was given time enough to.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.core.policy_spec import Mode
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import SharedStore
from webhook.store.backlog import Backlog, BacklogEntry, BookingCause, ServiceKey
from webhook.store.replica_sync import ReplicaSync

REFUNDS_MAX = 10_000
"""Of one service; beyond it what was charged for nobody leaves with its window."""

_AT_ONCE = 64
_REFUNDED_AT_ONCE = 64
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FallbackReports:
    """Whom the guard tells: which service goes by which rule, what was booked and why, and what could not be."""

    on_fallback: Callable[[str, str, bool], None]
    on_booked: Callable[[str, BookingCause, int], None]
    on_dropped: Callable[[], None]
    on_cached: Callable[[str], None]
    on_loss: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ReconcilerTiming:
    """Pauses: before a round after the first and after many that came to nothing, and after one that did not.

    `refund_after_seconds`: how long a call whose connection has died may still be carried out by a store that is back.
    `others_seconds`: how long a replica that owes nothing waits for the others to book what they owe.
    """

    first_seconds: float = 0.05
    longest_seconds: float = 0.25
    between_seconds: float = 0.005
    refund_after_seconds: float = 3.0
    others_seconds: float = 10.0


class Reconciler:
    """Runs while anything is owed. `look` takes a service's figures from the store, `settled` hears of a settled tag.

    `tell` tells the store how the service's breaker stands here: before anything else, for it may be open.
    `others` is how many other replicas there are.

    A debt that is remitted while it travels is booked all the same: give it back later.
    """

    def __init__(
        self,
        store: SharedStore,
        look: Callable[[CounterPlan], Awaitable[object]],
        tell: Callable[[ServiceKey], Awaitable[None]],
        settled: Callable[[str], None],
        others: Callable[[], int],
        reports: FallbackReports,
        pace: ReconcilerTiming,
    ) -> None:
        self._store = store
        self._look = look
        self._tell = tell
        self._settled = settled
        self._others = ReplicaSync(store, others, pace.others_seconds)
        self._reports = reports
        self._pace = pace
        self._debts = Backlog()
        self._refunds: dict[ServiceKey, dict[str, float | None]] = {}
        """By uid: the moment by the loop's clock, None while the store is away."""
        self._fallen: dict[ServiceKey, tuple[CounterPlan, str]] = {}
        self._fallen_of: Counter[str] = Counter()
        """By tag: how many of its services have fallen."""
        self._plans: dict[ServiceKey, CounterPlan] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def fall(self, plan: CounterPlan, rule: str) -> None:
        """Take note that a service goes by its own rule, until the store has shown it again."""
        key = plan.key
        former = self._fallen.get(key)
        if former is None or former[1] != rule:
            if former is not None:
                self._reports.on_fallback(plan.service, former[1], False)  # noqa: FBT003  it ends
            self._reports.on_fallback(plan.service, rule, True)  # noqa: FBT003  it begins
        self._fallen_of[plan.tag] += former is None
        self._fallen[key] = plan, rule
        self._others.begin_anew(plan.tag)
        self._begin()

    def owe(self, debt: BacklogEntry) -> None:
        self._others.begin_anew(debt.request.plan.tag)
        for _ in range(self._debts.add(debt)):
            self._reports.on_dropped()
        self._begin()

    def __bool__(self) -> bool:
        """Say whether anything is to be settled."""
        return self._task is not None

    def owes(self, plan: CounterPlan, uid: str) -> bool:
        return self._debts.find(plan, uid) is not None

    def owes_under(self, tag: str) -> bool:
        """Say whether the store lacks anything that this replica admitted under a tag."""
        return self._debts.has_tag(tag)

    def is_settled(self, tag: str) -> bool:
        """Say whether the store knows all that this replica, and as far as it can tell any other, admitted."""
        return tag not in self._fallen_of and not self._debts.has_tag(tag)

    def remit(self, plan: CounterPlan, uid: str) -> BacklogEntry | None:
        """Owe a Pod no more; return what was owed."""
        return self._debts.remove(plan, uid)

    def refund_later(self, plan: CounterPlan, uid: str) -> None:
        """Give back what the store may have charged for a Pod that does not come to be; one it never saw is nothing."""
        refunds = self._refunds.setdefault(plan.key, {})
        if len(refunds) < REFUNDS_MAX:
            refunds[uid] = None
            self._plans[plan.key] = plan
            self._begin()

    def keep(self, plan: CounterPlan, uid: str) -> None:
        """Give nothing back for a Pod that was admitted after all."""
        if self._refunds:
            self._refunds.get(plan.key, {}).pop(uid, None)

    async def close(self) -> None:
        """Tell the store what can be told at once; what comes after it stays untold."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                for key in [*self._fallen]:
                    with suppress(StoreUnavailableError):
                        await self._tell(key)
                while self._debts and await self._round():
                    pass
        except TimeoutError:
            pass  # what is not told by now is lost with this process

    def _begin(self) -> None:
        if self._task is None and not self._is_closing:
            self._task = asyncio.create_task(self._run(), name="store-settling")

    async def _run(self) -> None:
        pause_seconds = self._pace.first_seconds
        try:
            while self._fallen or self._debts or self._refunds:
                await asyncio.sleep(pause_seconds * random.uniform(0.5, 1))  # noqa: S311  it guards nothing
                came_to_something = await self._round()
                longer_seconds = max(pause_seconds * 2, self._pace.first_seconds)
                pause_seconds = min(longer_seconds, self._pace.longest_seconds)
                if came_to_something:
                    pause_seconds = self._pace.between_seconds
        finally:
            self._task = None

    async def _round(self) -> bool:
        """Go once through all services; return whether anything was booked, given back, or settled.

        A store that answers for none of many is asked for no more: it is away.
        """
        keys = [*{*self._fallen, *self._debts.keys(), *self._refunds}]
        random.shuffle(keys)  # where it answers for some, each has its turn
        came_to_something = False
        for first in range(0, len(keys), _AT_ONCE):
            results = await asyncio.gather(*(self._settle(key) for key in keys[first : first + _AT_ONCE]))
            came_to_something |= any(results)
            if len(results) == _AT_ONCE and all(result is None for result in results):
                break
        return came_to_something

    async def _settle(self, key: ServiceKey) -> bool | None:
        """Do what is next for a service; return whether that came to something, None where there was no answer."""
        try:
            await self._tell(key)
            debts = self._debts.oldest(key)
            if debts:
                await self._book(key, debts)
                return True
            if key in self._fallen:
                return await self._stand_up(key)
            return await self._give_back(key)
        except StoreUnavailableError:
            return None

    async def _stand_up(self, key: ServiceKey) -> bool:
        """Let the store judge a service again, if nothing is missing there; return whether anything came of it."""
        plan, rule = fallen = self._fallen[key]
        if plan.limits and self._debts.has_tag(plan.tag):
            return False
        if plan.limits and not await self._others.have_settled(plan):
            return await self._give_back(key)  # it is back: what it did for nobody need not wait for them
        await self._look(plan)
        if self._debts.has_tag(plan.tag) or self._fallen[key] is not fallen:
            return True  # it has fallen again meanwhile
        del self._fallen[key]
        self._fallen_of[plan.tag] -= 1
        self._reports.on_fallback(plan.service, rule, False)  # noqa: FBT003  it ends
        if not self._fallen_of[plan.tag]:
            del self._fallen_of[plan.tag]
            self._others.begin_anew(plan.tag)
            self._settled(plan.tag)
        return True

    async def _book(self, key: ServiceKey, debts: list[BacklogEntry]) -> None:
        plan, cause, booked = debts[0].request.plan, debts[0].cause, 0
        if debts[0].is_resize:
            unlimited = replace(plan, quota_mode=Mode.WARN)
            await asyncio.gather(*(self._store.acquire(replace(debt.request, plan=unlimited)) for debt in debts))
        else:
            booked = await self._store.book(plan, [debt.booking for debt in debts])
        for debt in debts:
            self._debts.settle(debt)
        if booked:
            self._reports.on_booked(key[1], cause, booked)

    async def _give_back(self, key: ServiceKey) -> bool:
        refunds = self._refunds.get(key)
        if not refunds:
            self._refunds.pop(key, None)
            self._plans.pop(key, None)
            return False
        now = asyncio.get_running_loop().time()
        due = [uid for uid, moment in refunds.items() if moment is not None and moment <= now]
        for uid, moment in refunds.items():
            if moment is None:
                refunds[uid] = now + self._pace.refund_after_seconds
        for uid in due[:_REFUNDED_AT_ONCE]:
            await self._store.refund(self._plans[key], uid)
            refunds.pop(uid, None)
        return bool(due)
