"""SlotNumbers: the slot of a Pod without an index, by the store, and by the owner in the cluster when in doubt."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from webhook.core.quota import CounterPlan
from webhook.core.shares import SlotOwner
from webhook.errors import StoreUnavailableError
from webhook.ports import HeldSlot, OwnedPods, SlotClaim, SlotOwners, SlotStore
from webhook.slots.recent_claims import CREATION_SECONDS, SETTLED_SECONDS, RecentClaims

_AGE_US = int(SETTLED_SECONDS * 1_000_000)
_CREATION_US = CREATION_SECONDS * 1_000_000
_ANSWER_SECONDS = 2.7
"""Less than the timeout of the mutating call."""
_T = TypeVar("_T")


class SlotReports(NamedTuple):
    """Receivers of what slots cost, by service."""

    on_claimed: Callable[[str], None] = lambda _: None
    on_listed: Callable[[str, str], None] = lambda _, __: None
    """The second argument is the reason: `unknown` or `exceeded`."""


UNREPORTED = SlotReports()
_UNKNOWN = SlotClaim(0)


class SlotAsk(Struct, frozen=True, gc=False):
    """One Pod that asks for a slot."""

    plan: CounterPlan
    owner: SlotOwner
    claim: str
    is_dry_run: bool


class SlotNumbers:
    """Slots of the Pods of one server, in a store that others share.

    `owners` is None without a cluster: each unknown owner is a new one, and none is exceeded. `spare` is asked while
    the store does not answer. Its owners are listed again once the store is back.
    """

    def __init__(
        self,
        slots: SlotStore,
        owners: SlotOwners | None,
        spare: SlotStore | None,
        reports: SlotReports,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.claims = RecentClaims(slots, sleep)
        self._slots = slots
        self._spare = spare
        self._stale: dict[str, CounterPlan] = {}
        """Owners of which the spare store has given slots that the store does not know."""
        self._owners = owners
        self._reports = reports
        self._sleep = sleep
        self._running: dict[tuple[str, str], asyncio.Future[Any]] = {}
        """Questions that are being answered, by the owner's uid and their kind."""

    async def take(self, ask: SlotAsk) -> tuple[int, str]:
        """Return a slot, and why it may be a wrong one, "" if it is not."""
        if self.claims.is_untold and not ask.is_dry_run:
            return await self._take_in_doubt(ask, _UNKNOWN, is_lost=True)
        try:
            if self._stale and not ask.is_dry_run:
                await self._forget_stale(ask.owner.uid)
            found = await self._slots.claim(ask.plan, ask.owner.uid, ask.claim, is_dry_run=ask.is_dry_run)
        except StoreUnavailableError as error:
            return await self._guess_without_store(ask, _UNKNOWN, str(error))
        if not self._suffices(found):
            is_lost = not found.slot and not ask.is_dry_run and self.claims.knows(ask.plan.service, ask.owner.uid)
            if is_lost and not self.claims.is_untold:
                self.claims.on_loss()
            return await self._take_in_doubt(ask, found, is_lost=is_lost)
        if not ask.is_dry_run:
            self._keep(ask, found)
        return found.slot, ""

    def _keep(self, ask: SlotAsk, found: SlotClaim) -> None:
        self._reports.on_claimed(ask.plan.service)
        self.claims.add(ask.plan, ask.owner.uid, HeldSlot(found.slot, ask.claim))

    async def _take_in_doubt(self, ask: SlotAsk, found: SlotClaim, *, is_lost: bool) -> tuple[int, str]:
        """Return a slot as `take` does, after the cluster has told of an owner that is unknown or has too few slots.

        If the store has lost data, the servers tell it of their claims before it is asked again.
        """
        is_told = not is_lost
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                if is_lost:
                    await self.claims.settle()
                    await self._forget_stale(ask.owner.uid)
                    found = await self._claim_in(self._slots, ask)
                    is_told = True
                # There is time to wait once: after a loss that is over, and of an unknown owner the first list does.
                for may_wait in (False, found.slot > 0 and not is_lost):
                    if self._suffices(found) or ask.is_dry_run:
                        break
                    if unread := await self._ask_cluster(ask, found, may_wait=may_wait, has_waited=is_lost):
                        return await self._guess(ask, found, unread)
                    found = await self._claim_in(self._slots, ask)
        except StoreUnavailableError as error:
            return await self._guess_without_store(ask, found, str(error))
        except TimeoutError:
            if is_told:
                return await self._guess(ask, found, "the API server does not answer in time")
            self._stale[ask.owner.uid] = ask.plan
            return await self._guess(ask, found, "the store is not told of all claims in time")
        if not found.slot:
            lost = "the store has lost its owner again"
            return await (self._foresee(ask) if ask.is_dry_run else self._guess_without_store(ask, found, lost))
        if not ask.is_dry_run:
            self._keep(ask, found)
        is_exceeded = not self._suffices(found) and not ask.is_dry_run
        return found.slot, f" (beyond the {found.replicas} slots of its owner)" if is_exceeded else ""

    async def _foresee(self, ask: SlotAsk) -> tuple[int, str]:
        """Return the slot that a Pod of an unknown owner would get. A dry run writes nothing."""
        pods = OwnedPods((), 0) if self._owners is None else await self._owners.list_held(ask.owner)
        if pods is None:
            return await self._guess(ask, SlotClaim(0), "the API server does not list the Pods of its owner")
        taken = {held.slot for held in pods.held}
        return next(slot for slot in count(1) if slot not in taken), ""

    async def _guess_without_store(self, ask: SlotAsk, found: SlotClaim, why: str) -> tuple[int, str]:
        """Return a guess; from now on the store does not know all slots of the owner."""
        if self._spare is not None and not ask.is_dry_run:
            if not (await self._spare.claim(ask.plan, ask.owner.uid, ask.claim, is_dry_run=True)).slot:
                held = await self._list_without_store(ask.owner)
                await self._spare.learn(ask.plan, ask.owner.uid, 0, held, _AGE_US, is_new=True)
            self._stale[ask.owner.uid] = ask.plan
        return await self._guess(ask, found, why)

    async def _list_without_store(self, owner: SlotOwner) -> Sequence[HeldSlot]:
        pods = None
        if self._owners is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    pods = await self._share((owner.uid, "spare"), partial(self._owners.list_held, owner))
        return pods.held if pods is not None else ()

    async def _guess(self, ask: SlotAsk, found: SlotClaim, why: str) -> tuple[int, str]:
        """Return a slot without the store or the API server: the one that was found, or the next of this server."""
        if found.slot and not ask.is_dry_run:
            self.claims.add(ask.plan, ask.owner.uid, HeldSlot(found.slot, ask.claim))
        if found.slot or self._spare is None:
            return found.slot or 1, f" (a guess: {why})"
        found = await self._claim_in(self._spare, ask)
        if not found.slot and not ask.is_dry_run:
            await self._spare.learn(ask.plan, ask.owner.uid, 0, (), 0, is_new=True)
            found = await self._claim_in(self._spare, ask)
        return found.slot or 1, f" (a guess of this server alone: {why})"

    async def _forget_stale(self, owner: str) -> None:
        """Let both stores list an owner again, some of whose slots only the spare one has given.

        Claims that the store knows stay: their Pods may still be created.
        """
        plan = self._stale.pop(owner, None)
        if plan is None or self._spare is None:
            return
        try:
            await self._slots.doubt(plan, owner)
        except StoreUnavailableError:
            self._stale[owner] = plan
            raise
        await self._spare.forget(plan, owner)

    async def _claim_in(self, store: SlotStore, ask: SlotAsk) -> SlotClaim:
        return await store.claim(ask.plan, ask.owner.uid, ask.claim, is_dry_run=ask.is_dry_run)

    def _suffices(self, found: SlotClaim) -> bool:
        return found.slot > 0 and (self._owners is None or found.slot <= found.replicas)

    async def _ask_cluster(self, ask: SlotAsk, found: SlotClaim, *, may_wait: bool, has_waited: bool) -> str:
        """Tell the store of an owner that it does not know, or that has more slots taken than it should.

        Return why that was not possible. Pods of an owner that ask at once share one answer.
        """
        plan, owner, owners = ask.plan, ask.owner, self._owners
        if owners is None:
            await self._slots.learn(plan, owner.uid, 0, (), _CREATION_US, is_new=True)
            return ""
        if found.slot:
            replicas = await self._share((owner.uid, "read"), partial(owners.read_replicas, owner))
            if replicas is None:
                return "the API server does not tell how many Pods its owner has"
            if found.slot <= replicas:
                await self._slots.learn(plan, owner.uid, replicas, None, 0)
                return ""
            if may_wait:
                await self._sleep(SETTLED_SECONDS)
            self.claims.drop(ask.claim)
            await self._slots.free(plan, owner.uid, [HeldSlot(found.slot, ask.claim)])
        reason = "exceeded" if found.slot else "unknown"
        learn = partial(self._learn_from_list, owners, ask, reason, has_waited=has_waited)
        return await self._share((owner.uid, reason), learn)

    async def _learn_from_list(self, owners: SlotOwners, ask: SlotAsk, reason: str, *, has_waited: bool) -> str:
        """Learn how many slots an owner has, and which of them its Pods carry; return why that was not possible.

        If the store has lost the owner, it is listed twice, unless the Pod has waited: others that asked before may not
        have been created yet.
        """
        replicas, pods = await asyncio.gather(owners.read_replicas(ask.owner), self._list_held(owners, ask, reason))
        if reason == "unknown" and not has_waited and pods is not None and pods.pods:
            await self._sleep(SETTLED_SECONDS)
            pods = await self._list_held(owners, ask, reason)
        if replicas is None:
            return "the API server does not tell how many Pods its owner has"
        if pods is None:
            return "the API server does not list the Pods of its owner"
        # An unknown owner has no claims but those that servers have told the store again.
        is_new, age_us = (True, _CREATION_US) if reason == "unknown" else (False, _AGE_US)
        await self._slots.learn(ask.plan, ask.owner.uid, replicas, pods.held, age_us, is_new=is_new)
        return ""

    async def _list_held(self, owners: SlotOwners, ask: SlotAsk, reason: str) -> OwnedPods | None:
        self._reports.on_listed(ask.plan.service, reason)
        return await owners.list_held(ask.owner)

    async def _share(self, asked: tuple[str, str], ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return the answer to a question about an owner; who asks while it is being answered gets the same one."""
        running = self._running.get(asked)
        if running is None:
            running = self._running[asked] = asyncio.ensure_future(ask())
            running.add_done_callback(lambda task: self._end(asked, task))
        return await asyncio.shield(running)

    def _end(self, asked: tuple[str, str], task: "asyncio.Future[Any]") -> None:
        del self._running[asked]
        if not task.cancelled():
            task.exception()  # everyone who asked may have left
