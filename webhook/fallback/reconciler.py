"""Reconciler: the loop that books, in a recovered store, the Pods admitted without it.

A round goes through the services that are not settled; one whose part of the store is unavailable delays no other.
Rounds without progress back off. Bookings are sent 64 at a time.

A tag is settled when this replica has booked all that it owes under it, and every other replica has since shown that it
owes nothing either, or had enough time for it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.fallback.backlog import Backlog, BacklogEntry, BookingCause, ServiceKey
from webhook.fallback.local_breakers import LocalBreakers
from webhook.fallback.pending_refunds import PendingRefunds
from webhook.fallback.replica_share import ReplicaShare
from webhook.fallback.replica_sync import ReplicaSync
from webhook.ports import SharedStore
from webhook.support.backoff import Backoff

_SERVICES_PER_STEP_MAX = 64
_CLOSE_SECONDS = 5.0
_FAILURE_MODE = "failureMode"
"""The rule of a service that has no quota."""


@dataclass(frozen=True, slots=True)
class FallbackReports:
    """Callbacks of a fallback, for metrics and logs."""

    on_fallback: Callable[[str, str, bool], None]
    """Receives a service, the rule that is applied, and whether the fallback begins."""
    on_booked: Callable[[str, BookingCause, int], None]
    on_dropped: Callable[[], None]
    on_cached: Callable[[str], None]
    on_loss: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ReconcilerTiming:
    """Delays before rounds: the first and the longest after rounds without progress, and after one with progress.

    `withdraw_after_seconds`: how long a recovered store may still carry out a call whose connection failed.
    `others_seconds`: how long a replica that owes nothing waits for the others to book their backlogs.
    """

    first_seconds: float = 0.05
    longest_seconds: float = 0.25
    between_seconds: float = 0.005
    withdraw_after_seconds: float = 3.0
    others_seconds: float = 10.0


class Reconciler:
    """Runs while anything is unsettled. The first step of each service is to propose its local breaker to the store.

    An entry that is removed while it is being booked is booked all the same: withdraw it later.
    """

    def __init__(
        self,
        store: SharedStore,
        share: ReplicaShare,
        breakers: LocalBreakers,
        reports: FallbackReports,
        timing: ReconcilerTiming,
        on_withdrawn: Callable[[CounterPlan], None],
    ) -> None:
        """`on_withdrawn` is called after a charge was withdrawn: there may be room again."""
        self._store = store
        self._share = share
        self._breakers = breakers
        self._replicas = ReplicaSync(store, lambda: share.others, timing.others_seconds)
        self._reports = reports
        self._timing = timing
        self._backlog = Backlog()
        self._refunds = PendingRefunds(store, timing.withdraw_after_seconds, on_withdrawn)
        self._fallbacks: dict[ServiceKey, tuple[CounterPlan, str]] = {}
        """The services in fallback, and the rule that is applied."""
        self._fallbacks_by_tag: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self.is_active = False
        """Whether anything is unsettled, and `_task` runs. Each review reads it."""
        self._is_closing = False

    def begin_fallback(self, plan: CounterPlan) -> None:
        """Apply a service's own rule until its counters have been read again."""
        key, rule = plan.key, str(plan.when_unavailable) if plan.limits else _FAILURE_MODE
        former = self._fallbacks.get(key)
        if former is None or former[1] != rule:
            if former is not None:
                self._reports.on_fallback(plan.service, former[1], False)  # noqa: FBT003  it ends
            self._reports.on_fallback(plan.service, rule, True)  # noqa: FBT003  it begins
        self._fallbacks_by_tag[plan.tag] += former is None
        self._fallbacks[key] = plan, rule
        self._replicas.restart(plan.tag)
        self._start()

    def add(self, entry: BacklogEntry) -> None:
        """Book an admission when the store answers."""
        self._replicas.restart(entry.request.plan.tag)
        for _ in range(self._backlog.add(entry)):
            self._reports.on_dropped()
        self._start()

    def owes(self, plan: CounterPlan, uid: str) -> bool:
        return self._backlog.find(plan, uid) is not None

    def owes_under(self, tag: str) -> bool:
        """Return whether the store lacks any admission of this replica under a tag."""
        return self._backlog.has_tag(tag)

    def is_settled(self, tag: str) -> bool:
        """Return whether the store knows all admissions of this replica and, as far as it can tell, of the others."""
        return tag not in self._fallbacks_by_tag and not self._backlog.has_tag(tag)

    def remove(self, plan: CounterPlan, uid: str) -> BacklogEntry | None:
        """Remove a Pod from the backlog; return its entry."""
        return self._backlog.remove(plan, uid)

    def withdraw(self, request: Acquire, known: NoStoreAnswerError | int | None = None) -> None:
        """Undo the charge of a Pod that was not admitted.

        `known`: the error that tells it, or the store's time of the charge; None if nothing more will be known.
        """
        if known is None:
            self._refunds.add(request)
        elif isinstance(known, int):
            self._refunds.send(request, known)
        else:
            self._refunds.follow(request, known)
        self._start()

    def keep_charge(self, plan: CounterPlan, uid: str) -> None:
        """Withdraw nothing of a Pod that was admitted after all."""
        if self._refunds:
            self._refunds.cancel(plan.key, uid)

    async def close(self) -> None:
        """Book what can be booked within seconds; nothing starts after this."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                for key in [*self._fallbacks]:
                    with suppress(StoreUnavailableError):
                        await self._breakers.propose_to(self._store, key)
                while self._backlog and await self._run_round():
                    pass
                await self._refunds.finish()
        except TimeoutError:
            pass  # the rest is lost with this process
        self._refunds.stop()

    def _start(self) -> None:
        if self._task is None and not self._is_closing:
            self._task = asyncio.create_task(self._run(), name="store-reconciler")
            self.is_active = True

    async def _run(self) -> None:
        backoff = Backoff(self._timing.first_seconds, self._timing.longest_seconds)
        delay_seconds = backoff.next_seconds()
        try:
            while self._fallbacks or self._backlog or self._refunds:
                await asyncio.sleep(delay_seconds)
                if await self._run_round():
                    backoff.reset()
                    delay_seconds = self._timing.between_seconds
                else:
                    delay_seconds = backoff.next_seconds()
        finally:
            self._task, self.is_active = None, False

    async def _run_round(self) -> bool:
        """Go once through all services; return whether anything was booked, refunded or settled.

        The round ends early if the store answers for none of many services: it is unavailable.
        """
        keys = [*{*self._fallbacks, *self._backlog.list_keys(), *self._refunds.list_keys()}]
        random.shuffle(keys)  # so that each service gets its turn even if the store answers for only some
        progress = False
        for first in range(0, len(keys), _SERVICES_PER_STEP_MAX):
            results = await asyncio.gather(*(self._settle(key) for key in keys[first : first + _SERVICES_PER_STEP_MAX]))
            progress |= any(results)
            if len(results) == _SERVICES_PER_STEP_MAX and all(result is None for result in results):
                break
        return progress

    async def _settle(self, key: ServiceKey) -> bool | None:
        """Do a service's next step; return whether that was progress, None if there was no answer."""
        try:
            await self._breakers.propose_to(self._store, key)
            entries = self._backlog.list_oldest(key)
            if entries:
                await self._book(key, entries)
                return True
            if key in self._fallbacks:
                return await self._end_fallback(key)
            return await self._refunds.send_due(key)
        except StoreUnavailableError:
            return None

    async def _end_fallback(self, key: ServiceKey) -> bool:
        """End a service's fallback if the store lacks nothing; return whether there was progress."""
        plan, rule = fallback = self._fallbacks[key]
        if plan.limits and self._backlog.has_tag(plan.tag):
            return False
        if plan.limits and not await self._replicas.has_settled(plan):
            return await self._refunds.send_due(key)  # the store is back: this needs no other replica
        await self._share.refresh(plan)
        if self._backlog.has_tag(plan.tag) or self._fallbacks[key] is not fallback:
            return True  # another outage or loss began meanwhile
        del self._fallbacks[key]
        self._fallbacks_by_tag[plan.tag] -= 1
        self._reports.on_fallback(plan.service, rule, False)  # noqa: FBT003  it ends
        if not self._fallbacks_by_tag[plan.tag]:
            del self._fallbacks_by_tag[plan.tag]
            self._replicas.restart(plan.tag)
            self._share.forget(plan.tag)
        return True

    async def _book(self, key: ServiceKey, entries: list[BacklogEntry]) -> None:
        plan, cause, booked = entries[0].request.plan, entries[0].cause, 0
        if entries[0].is_resize:
            unlimited = replace(plan, quota_mode=Mode.WARN)
            await asyncio.gather(*(self._store.acquire(replace(entry.request, plan=unlimited)) for entry in entries))
        else:
            booked = await self._store.book(plan, [entry.booking for entry in entries])
        for entry in entries:
            self._backlog.settle(entry)
        if booked:
            self._reports.on_booked(key[1], cause, booked)
