"""Pod releaser: charges waiting Pods in the order of their queues as soon as there is room, and releases them."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from msgspec.structs import replace

from webhook.controller.release.charging import RETRY_US, charge, find_obstacle
from webhook.controller.release.gated_pods import GatedPod
from webhook.core.controller.lane import UNANSWERED
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member
from webhook.core.policy_fields import WhenExpired
from webhook.core.quota import Booking, CounterPlan, Holder, QueuePlan, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore

_CHARGES_PER_CALL_MAX = 16
"""Pods that are charged in one call of the store."""
_DRAINING = QueuePlan(
    for_quota=False,
    for_breaker=False,
    rank=0,
    max_pods=0,
    max_wait_us=0,
    when_expired=WhenExpired.KEEP,
    ageing_us=600_000_000,
    lifted_percent=10,
)
"""For the Pods of a service that no longer queues."""


@dataclass(frozen=True, slots=True)
class ReleaseActions:
    """What happens to Pods that leave the queue. They raise nothing: a failed release refunds its charge."""

    release: Callable[[GatedPod], Awaitable[None]]
    """Remove the gate of a charged Pod."""
    expire: Callable[[GatedPod], Awaitable[None]]
    """The Pod has waited for `maxWait`: apply whenExpired. One that is kept waits on, and expires only once."""


class PodReleaser:
    """The queues of all services under one policy. `step` does what is due, and returns when to call it again."""

    def __init__(self, store: CounterStore, actions: ReleaseActions) -> None:
        self._store = store
        self._actions = actions
        self._plans: Mapping[str, CounterPlan] = {}
        self._orders: dict[str, ReleaseOrder] = {}
        """By tag, of all services that queue or have waiting Pods."""
        self._idle_us: dict[str, int] = {}
        """For each order, when it last had nothing to release."""
        self._together: dict[str, int] = {}
        """For each order, how many Pods are charged at once: twice as many each time, while all of them fit."""
        self._pods: dict[str, GatedPod] = {}
        self._counts: Counter[str] = Counter()
        self._deadlines: list[tuple[int, str]] = []
        self._unowned: list[str] = []
        """Pods of services that the policy does not have."""
        self._kept: set[str] = set()
        """Pods that have waited for `maxWait`, and wait on."""
        self.held_until_us = 0
        """Until then no Pod is charged: the store may lack charges."""
        self._left: float = inf
        """How many further Pods this step may release or expire."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def begin(self, plans: Mapping[str, CounterPlan]) -> None:
        """Start under a policy. Pods without a queue are released as limits allow; those without a service, at once."""
        self._plans = plans
        by_tag: dict[str, list[Member]] = {}
        for plan in plans.values():
            if plan.queue is not None or self._counts[plan.service]:
                rules = plan.queue or _DRAINING
                is_paused = rules.pause is not None
                member = Member(plan.service, rules.rank, rules.ageing_us, rules.lifted_percent, is_paused)
                by_tag.setdefault(plan.tag, []).append(member)
        self._orders = {tag: ReleaseOrder(members) for tag, members in by_tag.items()}
        self._idle_us = {tag: self._idle_us.get(tag, self._now_us()) for tag in self._orders}
        self._deadlines, self._unowned = [], []
        for pod in self._pods.values():
            self._enqueue(pod)

    def put(self, pod: GatedPod) -> None:
        """Add a Pod that waits. If it is known, its cost or its priority may have changed; it keeps its age."""
        waiting, known = pod.waiting, self._pods.get(pod.waiting.uid)
        if known is not None:
            waiting = replace(waiting, since_us=known.waiting.since_us)
            if waiting == known.waiting:
                return
            pod = replace(pod, waiting=waiting)
            self._take_out(waiting.uid)
        is_first = not self._counts[waiting.service]
        self._pods[waiting.uid] = pod
        self._counts[waiting.service] += 1
        plan = self._plans.get(waiting.service)
        if is_first and plan is not None and plan.queue is None:
            self.begin(self._plans)  # its queue is created only now
        else:
            self._enqueue(pod)

    def remove(self, uid: str) -> str | None:
        """Remove a Pod that was deleted, or whose gate was removed; return its service, None if it is unknown."""
        self._kept.discard(uid)
        return self._take_out(uid)

    def _take_out(self, uid: str) -> str | None:
        """Remove a Pod that may wait again: one that is kept after `maxWait` expires only once."""
        pod = self._drop(uid)
        if pod is None:
            return None
        if (plan := self._plans.get(pod.waiting.service)) is not None:
            self._orders[plan.tag].remove(uid)
        return pod.waiting.service

    def count_pods(self) -> Mapping[str, int]:
        """Return how many Pods of each service wait."""
        return {service: count for service, count in self._counts.items() if count}

    def count_waiting(self, service: str) -> int:
        return self._counts[service]

    def find_oldest_us(self) -> Mapping[str, int]:
        """Return since when the oldest Pod of each service waits."""
        return {service: at_us for order in self._orders.values() for service, at_us in order.find_oldest_us().items()}

    def list_sequences(self, now_us: int) -> Iterator[list[tuple[GatedPod, bool]]]:
        """Yield the Pods of each queue in the order of their release, and whether ageing has lifted them."""
        for order in self._orders.values():
            yield [(self._pods[queued.pod.uid], queued.is_lifted) for queued in order.compute_sequence(now_us)]

    def find_blocking_holder(self, pod: GatedPod) -> str | None:
        """Return whose limit has no room for a Pod; None if it only waits for others."""
        plan = self._plans.get(pod.waiting.service)
        return self._orders[plan.tag].find_blocking_holder(pod.waiting.uid) if plan is not None else None

    def list_times_us(self) -> Mapping[str, Mapping[str, int]]:
        """Return the waiting Pods of each service that has some, and since when each of them waits."""
        found: dict[str, dict[str, int]] = {}
        for uid, pod in self._pods.items():
            found.setdefault(pod.waiting.service, {})[uid] = pod.waiting.since_us
        return found

    def retry(self) -> None:
        """Try all Pods again: there may be room before the expected time."""
        for order in self._orders.values():
            order.retry()

    def _enqueue(self, pod: GatedPod) -> None:
        waiting, plan = pod.waiting, self._plans.get(pod.waiting.service)
        if plan is None:
            self._unowned.append(waiting.uid)
            return
        self._orders[plan.tag].add(waiting)
        if plan.queue is not None:
            heapq.heappush(self._deadlines, (waiting.since_us + plan.queue.max_wait_us, waiting.uid))

    def _drop(self, uid: str) -> GatedPod | None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._counts[pod.waiting.service] -= 1
        return pod

    async def step(self, most: int | None = None, held: AbstractSet[str] = frozenset()) -> int | None:
        """Expire and release what is due; return when the next Pod may be due, None if none waits.

        After `most` Pods it returns at once. The next step then begins with another queue. No Pod of the services
        `held` is released.
        """
        self._left = inf if most is None else most
        for order in self._orders.values():
            order.held_services = held
        await self._expire()
        while self._unowned and self._left > 0:
            if (pod := self._drop(self._unowned.pop())) is not None:
                self._left -= 1
                await self._actions.release(pod)
        for tag in (*self._orders,) if self._now_us() >= self.held_until_us else ():
            await self._release_due(tag)
            if self._left <= 0:
                self._orders[tag] = self._orders.pop(tag)
                return self._now_us()
        now_us = self._now_us()
        if now_us < self.held_until_us:
            return self.held_until_us
        times = [at_us for order in self._orders.values() if (at_us := order.find_next_us(now_us)) is not None]
        return min([*times, *(at_us for at_us, _ in self._deadlines[:1])], default=None)

    async def release(self, uid: str) -> None:
        """Charge a waiting Pod past every limit, and release it. StoreUnavailableError: it waits on."""
        pod = self._pods[uid]
        waiting, plan = pod.waiting, self._plans.get(pod.waiting.service)
        if plan is not None:
            await self._store.book(plan, [Booking(pod.namespace, uid, waiting.cost, self._now_us(), pod.name)])
            self._take_out(uid)
            await self._actions.release(pod)

    async def try_one(self, service: str) -> None:
        """Charge and release the next Pod of one service if it fits, also while the service is held."""
        plan = self._plans.get(service)
        order = self._orders.get(plan.tag) if plan is not None else None
        if plan is None or order is None or self._now_us() < self.held_until_us:
            return
        order.held_services = {name for name in self._plans if name != service}
        if pods := self._take_next(order, 1):
            await self._charge(plan.tag, pods)

    def _now_us(self) -> int:
        """Return the store's time, as the moments in receipts are."""
        return self._store.now_us()

    async def _expire(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= self._now_us() and self._left > 0:
            _, uid = heapq.heappop(self._deadlines)
            pod = self._pods.get(uid)
            if pod is None:
                continue
            if not self._is_kept(pod):
                self.remove(uid)
                self._left -= 1
            elif uid in self._kept:
                continue
            else:
                self._kept.add(uid)
            await self._actions.expire(pod)

    def _is_kept(self, pod: GatedPod) -> bool:
        plan = self._plans.get(pod.waiting.service)
        return plan is None or plan.queue is None or plan.queue.keeps_expired

    async def _release_due(self, tag: str) -> None:
        order = self._orders[tag]
        while self._left > 0:
            if not (pods := self._take_next(order, min(self._together.get(tag, 1), self._left))):
                self._idle_us[tag] = self._now_us()
                break
            if not await self._charge(tag, pods):
                break

    def _take_next(self, order: ReleaseOrder, most: float) -> list[GatedPod]:
        """Take the next Pods out of the order, as if each of them fitted."""
        taken: list[GatedPod] = []
        while len(taken) < most and (waiting := order.take(self._now_us())) is not None:
            taken.append(self._pods[waiting.uid])
        return taken

    async def _charge(self, tag: str, pods: Sequence[GatedPod]) -> bool:
        """Charge Pods in their order and release those that fit, put the others back; False if they must wait."""
        order, idle_us = self._orders[tag], self._idle_us[tag]
        receipts = await asyncio.gather(*(charge(self._store, self._plans[pod.waiting.service], pod) for pod in pods))
        fitting, others = list[GatedPod](), list[tuple[GatedPod, Receipt | None]]()
        for pod, receipt in zip(pods, receipts, strict=True):
            uid = pod.waiting.uid
            is_charged = receipt is not None and receipt.refused is None and not receipt.repeated
            if receipt is None or not is_charged or receipt.at_us < self.held_until_us:
                others.append((pod, receipt))
                continue
            due_us = max(pod.waiting.since_us, idle_us, order.find_due_us(uid))
            fitting.append(replace(pod, due_us=min(due_us, receipt.at_us)))
            order.confirm(uid)
            self._take_out(uid)
        answered = [await self._put_back(order, *pair) for pair in reversed(others)]  # as `ReleaseOrder` requires
        if any(receipt is not None and receipt.repeated for receipt in receipts):
            order.retry()  # refunds may have made room for others that were tried
        grown = min(max(self._together.get(tag, 1), 2 * len(pods)), _CHARGES_PER_CALL_MAX)
        self._together[tag] = 1 if others else grown
        self._left -= len(fitting)
        for pod in fitting:
            await self._actions.release(pod)
        return all(answered)

    async def _put_back(self, order: ReleaseOrder, pod: GatedPod, receipt: Receipt | None) -> bool:
        """Let a Pod wait on that is not released; False if no other one should be tried now."""
        uid = pod.waiting.uid
        is_held = receipt is not None and receipt.at_us < self.held_until_us  # the answer revealed a loss
        try:
            if receipt is not None and receipt.refused is None:
                # Or a former leader charged it, or its admission: its window may have passed.
                await self._store.refund(self._plans[pod.waiting.service], uid)
        except StoreUnavailableError:  # a later charge is a repeated one, and refunded then
            receipt = None
        if receipt is None or is_held:
            until_us = self.held_until_us if is_held else self._now_us() + RETRY_US
            order.put_back(uid, self._now_us(), until_us, UNANSWERED)
            return False
        if receipt.repeated:
            order.put_back(uid, receipt.at_us, receipt.at_us, Holder.SERVICE)
            return True
        until_us, by = find_obstacle(receipt)
        order.put_back(uid, receipt.at_us, max(until_us, receipt.at_us + 1), by)
        return True
