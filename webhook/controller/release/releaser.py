"""Pod releaser: charges waiting Pods in the order of their queues as soon as there is room, and releases them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from webhook.controller.release.actions import ReleaseActions, Released, build_member, keeps_expired
from webhook.controller.release.charging import ReleaseStore, charge, renew_charge, take_back
from webhook.controller.release.gated_groups import GatedGroup
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.obstacles import RETRY_US, Obstacles
from webhook.controller.release.queue_time import QueueTime
from webhook.controller.release.queued_pods import QueuedPods
from webhook.controller.release.rate_limit import RefusalRateLimit, compute_pass_us
from webhook.core.controller.lane import UNANSWERED
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import CounterPlan, Holder, Receipt
from webhook.ports import Clock

_CHARGES_PER_CALL_MAX = 16
"""Pods that are charged in one call of the store."""
_UNBOUNDED = 2**31


class PodReleaser:
    """The queues of all services under one policy. `step` does what is due, and returns when to call it again."""

    def __init__(self, store: ReleaseStore, actions: ReleaseActions, clock: Clock) -> None:
        self._store = store
        self.time = QueueTime(clock, store)
        self._now_us = self.time.now_us
        self._actions = actions
        self._plans: Mapping[str, CounterPlan] = {}
        self._members: dict[str, dict[str, Member]] = {}
        """By tag and service, all services that queue or have waiting Pods."""
        self._orders: dict[str, ReleaseOrder] = {}
        """By tag, made when the first Pod waits: of many services few have waiting Pods."""
        self._idle_us: dict[str, int] = {}
        """For each order, when it last had nothing to release."""
        self._together: dict[str, int] = {}
        """For each order, how many Pods are charged at once: twice as many each time that all of them fit."""
        self.pods = QueuedPods()
        self._unowned: dict[str, GatedPod] = {}
        """Pods of services that the policy does not have: they are in no order."""
        self.held_until_us = 0
        """Until then no Pod is charged: the store may lack charges."""
        self._refusals, self._obstacles = RefusalRateLimit(), Obstacles()
        self._left, self._is_turn_of_expired = _UNBOUNDED, False
        """How many further Pods this step may release or delete."""

    def __contains__(self, uid: str) -> bool:
        return uid in self.pods

    def begin(self, plans: Mapping[str, CounterPlan]) -> None:
        """Start under a policy. Pods without a queue are released as limits allow; those without a service, at once."""
        self._plans, self._obstacles = plans, Obstacles()
        self._members, self._orders, self._idle_us, self._unowned = {}, {}, {}, {}
        for plan in plans.values():
            if plan.queue is not None or self.pods.count(plan.service):
                self._members.setdefault(plan.tag, {})[plan.service] = build_member(plan)
        self._together = {tag: count for tag, count in self._together.items() if tag in self._members}
        self.pods.clear_deadlines()
        for pod in self.pods.list_pods():
            self._enqueue(pod)
        for uid, group in tuple(self.pods.groups.items()):
            self.drop_group(uid)
            self.put_group(group)

    def put(self, pod: GatedPod, *, is_apart: bool = False) -> None:
        """Add a Pod that waits. If it is known, its cost or its priority may have changed; it keeps its age.

        One that `is_apart` waits for its group: it is not released by itself.
        """
        waiting, known = pod.waiting, self.pods.get(pod.waiting.uid)
        if known is not None:
            waiting = replace(waiting, since_us=known.waiting.since_us)
            if waiting == known.waiting and is_apart is self.pods.is_apart(waiting.uid):
                return
            pod = replace(pod, waiting=waiting)
            self._take_out(waiting.uid)
        self.pods.add(pod, is_apart=is_apart)
        self._enqueue(pod)

    def put_group(self, group: GatedGroup) -> None:
        """Add a complete group whose members wait apart, or replace it; it keeps its place if nothing has changed."""
        uid, plan = group.waiting.uid, self._plans.get(group.waiting.service)
        known = self.pods.groups.get(uid)
        if plan is None or (known is not None and known.members == group.members):
            return
        self.drop_group(uid)
        self.pods.groups[uid] = group
        self._add_to_order(plan, group.waiting)

    def drop_group(self, uid: str) -> None:
        """Remove a group that is no longer complete, if it is known. Its members wait on."""
        group = self.pods.groups.pop(uid, None)
        if group is not None and (order := self._find_order(group)) is not None:
            order.remove(uid)

    def remove(self, uid: str) -> str | None:
        """Remove a Pod that was deleted, or whose gate was removed; return its service, None if it is unknown."""
        self.pods.forget(uid)
        return self._take_out(uid)

    def _take_out(self, uid: str) -> str | None:
        """Remove a Pod that may wait again."""
        if (pod := self.pods.get(uid)) is None:
            return None
        if (group := self.pods.find_group(pod)) is not None:
            self.drop_group(group.waiting.uid)  # it is no longer complete
        self.pods.drop(uid)
        self._unowned.pop(uid, None)
        if (order := self._find_order(pod)) is not None:
            order.remove(uid)
        return pod.waiting.service

    def find_oldest_us(self) -> Mapping[str, int]:
        """Return since when the oldest Pod of each service waits."""
        return {service: at_us for order in self._orders.values() for service, at_us in order.find_oldest_us().items()}

    def list_sequences(self, now_us: int) -> Iterator[list[tuple[GatedPod, bool]]]:
        """Yield the Pods of each queue in the order of their release, and whether ageing has lifted them."""
        for order in self._orders.values():
            found = ((queued, self.pods.find_whole(queued.pod.uid)) for queued in order.compute_sequence(now_us))
            yield [(pod, queued.is_lifted) for queued, whole in found for pod in whole.pods]

    def find_blocking_holder(self, pod: GatedPod) -> str | None:
        """Return whose limit has no room for a Pod or for its group; None if it only waits for others."""
        order = self._find_order(pod)
        return None if order is None else order.find_blocking_holder((self.pods.find_group(pod) or pod).waiting.uid)

    def retry(self) -> None:
        """Try all Pods again: there may be room before the expected time.

        A service with many different Pods first goes on with those that were not tried yet.
        """
        for order in self._orders.values():
            order.retry(self._refusals.reached)

    def _enqueue(self, pod: GatedPod) -> None:
        waiting, plan = pod.waiting, self._plans.get(pod.waiting.service)
        if plan is None:
            self._unowned[waiting.uid] = pod
            return
        if not self.pods.is_apart(waiting.uid):
            self._add_to_order(plan, waiting)
        if plan.queue is not None:
            self.pods.set_deadline(waiting.uid, waiting.since_us + plan.queue.max_wait_us)

    def _add_to_order(self, plan: CounterPlan, waiting: WaitingPod) -> None:
        """Let a Pod or a group wait; the order is made anew if its service is not a member: it no longer queues."""
        tag, members = plan.tag, self._members.setdefault(plan.tag, {})
        order = former = self._orders.get(tag)
        if order is None or plan.service not in members:
            members.setdefault(plan.service, build_member(plan))
            order = self._orders[tag] = ReleaseOrder(members.values())
            for queued in former.compute_sequence(self._now_us()) if former is not None else ():
                order.add(queued.pod)
        if not len(order):
            self._idle_us[tag] = self._now_us()
        order.add(waiting)

    def _find_order(self, whole: Released) -> ReleaseOrder | None:
        """Return the order in which a Pod or a group waits, None if its service is gone or none waits yet."""
        plan = self._plans.get(whole.waiting.service)
        return None if plan is None else self._orders.get(plan.tag)

    async def step(self, most: int | None = None, held: AbstractSet[str] = frozenset()) -> int | None:
        """Expire and release what is due; return when the next Pod may be due, None if none waits.

        After `most` Pods it returns at once. The next step then begins with another queue. No Pod of the services
        `held` is released.
        """
        self._left = _UNBOUNDED if most is None else most
        self._refusals.begin(self._now_us())
        for order in self._orders.values():
            order.held_services = held | self._refusals.reached
        await self._expire()
        while self._unowned and self._left > 0:
            pod = next(iter(self._unowned.values()))
            self._take_out(pod.waiting.uid)
            self._left -= 1
            await self._actions.release(pod)
        is_held = self._now_us() < self.held_until_us
        for tag in [tag for tag, order in self._orders.items() if len(order) and not is_held]:
            await self._release_due(tag)
            if self._left <= 0:
                self._orders[tag] = self._orders.pop(tag)
                return self._now_us()
        if (now_us := self._now_us()) < self.held_until_us:
            return self.held_until_us
        times = [at_us for order in self._orders.values() if (at_us := order.find_next_us(now_us)) is not None]
        deadline_us = self.pods.find_deadline_us()
        return min([*times, *([] if deadline_us is None else [deadline_us])], default=None)

    async def release(self, uid: str) -> None:
        """Charge a waiting Pod past every limit, with its group, and release it. StoreUnavailableError: it waits on."""
        pod = self.pods.get(uid)
        plan = self._plans.get(pod.waiting.service) if pod is not None else None
        if pod is None or plan is None:
            return
        whole, charged_us = self.pods.find_group(pod) or pod, self._store.now_us()
        await self._store.book(plan, [one.build_booking(charged_us) for one in whole.pods])
        self._take_out_whole(whole)
        await self._actions.release(whole)

    def _take_out_whole(self, whole: Released) -> None:
        self.drop_group(whole.waiting.uid)
        for pod in whole.pods:
            self._take_out(pod.waiting.uid)

    async def try_one(self, service: str) -> None:
        """Charge and release the next Pod of one service if it fits, also while the service is held."""
        plan = self._plans.get(service)
        if plan is None or (order := self._orders.get(plan.tag)) is None or self._now_us() < self.held_until_us:
            return
        order.held_services = {name for name in self._plans if name != service}
        if pods := self._take_next(order, 1):
            await self._charge(plan.tag, pods)

    async def _expire(self) -> None:
        """Apply whenExpired. Deletions leave half of the room to releases: a room of one every second time."""
        now_us, self._is_turn_of_expired = self._now_us(), not self._is_turn_of_expired
        kept = (self._left + (not self._is_turn_of_expired)) // 2
        for pod in self.pods.take_expired(now_us) if self._left > kept else ():
            uid = pod.waiting.uid
            if keeps_expired(self._plans.get(pod.waiting.service)):
                if self.pods.note_kept(uid):
                    self._actions.keep(pod)
            elif await self._actions.delete(pod):
                self._left -= 1
            else:
                self.pods.set_deadline(uid, now_us + RETRY_US)
            if self._left <= kept:
                return

    async def _release_due(self, tag: str) -> None:
        order = self._orders[tag]
        while self._left > 0:
            if not (pods := self._take_next(order, min(self._together.get(tag, 1), self._left))):
                self._idle_us[tag] = self._now_us()
                break
            if not await self._charge(tag, pods):
                break

    def _take_next(self, order: ReleaseOrder, most: int) -> list[Released]:
        """Take the next Pods and groups out of the order, as if each of them fitted."""
        taken: list[Released] = []
        while len(taken) < most and (waiting := order.take(self._now_us())) is not None:
            taken.append(self.pods.find_whole(waiting.uid))
        return taken

    async def _charge(self, tag: str, pods: Sequence[Released]) -> bool:
        """Charge Pods in their order and release those that fit, put the others back; False if they must wait."""
        order, idle_us, asked_us = self._orders[tag], self._idle_us[tag], self._now_us()
        plans = [self._plans[pod.waiting.service] for pod in pods]
        known = await asyncio.gather(*(charge(self._store, plan, pod) for plan, pod in zip(plans, pods, strict=True)))
        answered = zip(plans, pods, known, strict=True)
        receipts = [await renew_charge(self._store, plan, pod, receipt) for plan, pod, receipt in answered]
        fitting, others = list[Released](), list[tuple[Released, Receipt | None]]()
        for pod, receipt in zip(pods, receipts, strict=True):
            uid = pod.waiting.uid
            is_charged = receipt is not None and receipt.refused is None and not receipt.repeated
            if receipt is None or not is_charged or self._now_us() < self.held_until_us:
                others.append((pod, receipt))
                continue
            due_us = max(pod.waiting.since_us, idle_us, order.find_due_us(uid))
            fitting.append(replace(pod, due_us=min(due_us, self._now_us())))
            order.confirm(uid)
            self._take_out_whole(pod)
        may_go_on = [await self._put_back(order, *one, asked_us) for one in reversed(others)]  # as the order requires
        if any(receipt is not None and receipt.repeated for receipt in receipts):
            order.retry(self._refusals.reached)  # refunds may have made room
        grown = min(max(self._together.get(tag, 1), 2 * len(pods)), _CHARGES_PER_CALL_MAX)
        self._together[tag] = 1 if others else grown
        self._left -= sum(len(whole.pods) for whole in fitting)
        for pod in fitting:
            await self._actions.release(pod)
        return all(may_go_on)

    async def _put_back(self, order: ReleaseOrder, pod: Released, receipt: Receipt | None, asked_us: int) -> bool:
        """Let a Pod or a group wait on that is not released; False if no other one should be tried now."""
        uid, plan = pod.waiting.uid, self._plans[pod.waiting.service]
        is_held = receipt is not None and self._now_us() < self.held_until_us  # the answer revealed a loss
        receipt = await take_back(self._store, plan, pod, receipt)
        now_us = self._now_us()
        if receipt is None or is_held:
            order.put_back(uid, now_us, self.held_until_us if is_held else now_us + RETRY_US, UNANSWERED)
            return False
        if receipt.repeated:
            order.put_back(uid, now_us, now_us, Holder.SERVICE)
            return True
        self._refusals.note(pod.waiting.service)
        order.held_services |= self._refusals.reached
        until_us, by = self._obstacles.find(plan.tag, receipt, asked_us, now_us)
        order.put_back(uid, now_us, max(until_us, now_us + compute_pass_us(order.count_lanes(plan.service))), by)
        return until_us > now_us or by is not Holder.POOL
