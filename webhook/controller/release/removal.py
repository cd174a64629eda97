"""Gate removal: removes the gates of charged Pods concurrently, and tries again what failed.

A charge is kept until it is known whether the gate is removed, but not for long: it will leave its window.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from webhook.controller.release.failures import PAUSE_US, ReleaseFailures
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.pod_backoff import PodBackoff
from webhook.controller.release.removal_slots import RemovalSlots
from webhook.core.quota import CounterPlan
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import CounterStore, GateClient, QueueIndex

_BACKLOG_MAX = 16
"""Charged Pods that wait until their gates are removed."""
_REFUSALS_MAX = 16
"""Refusals in a row from which the Pods of a service are tried one at a time: the cause may concern all of them."""
_RESERVED_US = 30_000_000


@dataclass(frozen=True, slots=True)
class RemovalReports:
    """Callbacks of a `GateRemoval`."""

    on_released: Callable[[GatedPod], None]
    on_room: Callable[[], None]
    """A charge was refunded."""
    on_vanished: Callable[[CounterPlan, GatedPod], None]
    """A member of a group is gone, and is still charged."""
    on_waiting: Callable[[GatedPod], None]
    """A Pod that was set aside waits again."""
    on_trouble: Callable[[str], None]
    """The store gave no answer."""


class GateRemoval:
    """Gates that are being removed, and those that could not be.

    - Without an answer the Pod stays charged, and its gate is removed again each second. After 30 s it is refunded,
      unless it is gone: an attempt may have removed its gate, and it may have run.
    - A refusal concerns one Pod: it is refunded, unless an earlier attempt may have removed the gate.
    - Members of a group are refunded only while the gates of all of them are there: else they stay charged, and their
      gates are removed again each second.
    - A refunded Pod is set aside: others take their turn. It waits again, as old as it is, after 5 s, then 10 s, at
      most 60 s; at once if it has changed, or if another Pod of its service that was refused is released.
    """

    def __init__(
        self,
        store: CounterStore,
        index: QueueIndex,
        gates: GateClient,
        failures: ReleaseFailures,
        reports: RemovalReports,
    ) -> None:
        self._store = store
        self._index = index
        self._gates = gates
        self._failures = failures
        self._reports = reports
        self._slots = RemovalSlots(store.now_us)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._backlog: dict[str, GatedPod] = {}
        """Pods whose removal waits for a slot."""
        self._charged: dict[str, tuple[CounterPlan, GatedPod, int]] = {}
        """Charged Pods whose gates may still be there, and since when."""
        self._silent: set[str] = set()
        """Charged Pods of which an attempt had no answer: it may have removed the gate."""
        self.backoff = PodBackoff(reports.on_waiting)
        self._gone: set[str] = set()
        """Pods that were deleted, or whose gates were removed, while their removal ran."""
        self._left: dict[str, tuple[CounterPlan, list[str]]] = {}
        """Pods that have left the queue and are still in the index, by service."""
        self._group_of: dict[str, str] = {}
        """The groups of members that are released together, by uid."""
        self._begun: set[str] = set()
        """Groups of which a gate was removed."""
        self._refused: set[str] = set()
        """Members of groups whose last removal was refused: others of their services need not wait for them."""
        self._refusals = Counter[str]()
        """Removals in a row that were refused, by service."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._running or uid in self._charged or uid in self.backoff

    @property
    def room(self) -> int:
        """Return how many further Pods should be charged now: a charge is older than the release that it is for."""
        waiting = sum(not self._slots.hangs(pod.namespace) for pod in self._backlog.values())
        return max(0, _BACKLOG_MAX - waiting)

    @property
    def slow_services(self) -> AbstractSet[str]:
        """Services whose Pods should be tried one a second: all the last ones were refused."""
        return {service for service, count in self._refusals.items() if count >= _REFUSALS_MAX}

    @property
    def held_services(self) -> AbstractSet[str]:
        """Services whose Pods should not be charged now: slow ones, and those with charged Pods without an answer."""
        silent = [pod for uid, (_, pod, _) in self._charged.items() if uid not in self._refused]
        silent += [pod for pod in self._backlog.values() if self._slots.hangs(pod.namespace)]
        return {pod.waiting.service for pod in silent} | self.slow_services

    def is_charged(self, uid: str) -> bool:
        return uid in self._charged

    def join(self, group: str, uids: Iterable[str]) -> None:
        """Note that Pods are released together, before the first of them is started."""
        self._group_of.update(dict.fromkeys(uids, group))

    def start(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        """Start to remove the gate of a charged Pod; without a plan it is not charged."""
        uid = pod.waiting.uid
        self._backlog[uid] = pod
        self._running[uid] = task = asyncio.create_task(self._remove(plan, pod))
        task.add_done_callback(lambda _: self._forget_task(uid))

    def _forget_task(self, uid: str) -> None:
        del self._running[uid]
        if uid not in self:
            self._gone.discard(uid)
            self.backoff.forget(uid)
        if uid not in self._charged:
            self._refused.discard(uid)
            self._silent.discard(uid)
        if uid not in self._charged and (group := self._group_of.pop(uid, None)) not in self._group_of.values():
            self._begun.discard(group or "")

    def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()

    def set_aside(self, pod: GatedPod, error: GateError | None = None) -> None:
        """Let a Pod wait again, but not at once; `error` says why it was not released or deleted."""
        now_us, uid = self._store.now_us(), pod.waiting.uid
        if uid in self._gone:
            self._forget_wait(uid)
            return
        failure = self._failures.note(pod, now_us, error) if error is not None else self._failures.get(uid)
        self.backoff.add(pod, now_us + (failure.pause_us if failure is not None else PAUSE_US))

    def update_pod(self, pod: GatedPod) -> None:
        """Replace a Pod that has changed."""
        self._failures.update_pod(pod)
        self.backoff.update_pod(pod)

    def remove(self, uid: str) -> None:
        """Forget a Pod that is deleted, or no longer has a gate; a charged one is tried again."""
        self._forget_wait(uid)
        if uid in self:
            self._gone.add(uid)

    async def update_index(self) -> None:
        """Remove the Pods that have left the queue from the index, those of one service in one call."""
        left, self._left = self._left, {}
        for plan, uids in left.values():
            with suppress(StoreUnavailableError):  # then the loop does it when it mends the index
                await self._index.forget(plan, uids)

    async def retry(self, now_us: int) -> None:
        """Remove gates again; refund what is charged for too long; called once a second."""
        for uid, (plan, pod, since_us) in tuple(self._charged.items()):
            if uid in self._running:
                continue
            if uid in self._group_of:
                await self._retry_member(uid, now_us)
            elif now_us - since_us < _RESERVED_US:
                self._charged[uid] = self._charged.pop(uid)  # others are the first to be tried the next time
                self.start(plan, pod)
            elif uid in self._gone:
                # An attempt without an answer may have removed the gate: the charge stays.
                del self._charged[uid]
                self._silent.discard(uid)
                self._forget_wait(uid)
            else:
                await self._refund(plan, pod)
        self.backoff.return_due(now_us, self.slow_services)

    async def _retry_member(self, uid: str, now_us: int) -> None:
        """Remove the gate of a member again, or refund its whole group if none of its gates can be removed."""
        group, (plan, pod, since_us) = self._group_of[uid], self._charged[uid]
        members = [one for one, its in self._group_of.items() if its == group]
        # One that is gone may have been released by an attempt without an answer.
        if now_us - since_us < _RESERVED_US or group in self._begun or not self._gone.isdisjoint(members):
            self.start(plan, pod)
        elif all(one in self._charged and one not in self._running for one in members):
            for one in members:
                self._group_of.pop(one)
                self._refused.discard(one)
                await self._refund(*self._charged[one][:2])

    async def _remove(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        uid = pod.waiting.uid
        has_slot = await self._slots.acquire(pod.namespace)
        del self._backlog[uid]
        try:
            if not has_slot:
                await self._set_untried_aside(plan, pod)
                return
            is_there = await self._ask_for_removal(pod)
            self._note_answer(pod)
            if is_there:
                self._begun.update(filter(None, [self._group_of.get(uid)]))
                self._reports.on_released(pod)
            elif plan is not None and uid in self._group_of:
                self._reports.on_vanished(plan, pod)
            elif plan is not None and uid not in self._silent:
                await self._store.refund(plan, uid)
                self._reports.on_room()
            self._charged.pop(uid, None)
            self._forget_wait(uid)
        except GateError as error:
            await self._note_failure(plan, pod, error)
        except StoreUnavailableError as error:
            self._reports.on_trouble(str(error))
            if plan is not None:
                self._charged.setdefault(uid, (plan, pod, self._store.now_us()))
        else:
            if plan is not None:
                self._left.setdefault(plan.service, (plan, []))[1].append(uid)

    async def _ask_for_removal(self, pod: GatedPod) -> bool:
        """Remove a gate, and give the slot of its namespace back; as `GateClient.remove`."""
        is_answered = False
        try:
            is_there = await self._gates.remove(pod.namespace, pod.name, pod.waiting.uid)
            is_answered = True
        except GateError as error:
            is_answered = error.is_refused
            raise
        finally:
            self._slots.release(pod.namespace, is_answered=is_answered)
        return is_there

    async def _set_untried_aside(self, plan: CounterPlan | None, pod: GatedPod) -> None:
        """Refund a Pod that got no slot, unless an earlier attempt may have removed its gate, or those of its group."""
        uid = pod.waiting.uid
        if uid not in self._gone:
            said = "cannot release: no answer in time to other calls in its namespace"
            self._failures.note(pod, self._store.now_us(), GateError(f"{pod.namespace}/{pod.name}", said))
        if plan is None:
            self.set_aside(pod)
        elif uid in self._group_of:
            self._charged.setdefault(uid, (plan, pod, self._store.now_us()))
        elif uid not in self._charged:
            await self._refund(plan, pod)

    def _note_answer(self, pod: GatedPod) -> None:
        self._refusals.pop(pod.waiting.service, None)
        if self._failures.forget(pod.waiting.uid):
            self.backoff.note_released(pod.waiting.service)

    async def _note_failure(self, plan: CounterPlan | None, pod: GatedPod, error: GateError) -> None:
        uid, service = pod.waiting.uid, pod.waiting.service
        if error.is_refused:
            self._refusals[service] = min(self._refusals[service] + 1, _REFUSALS_MAX)
        else:
            self._silent.add(uid)
        if plan is None:
            self.set_aside(pod, error)
            return
        may_be_released = uid in self._charged or uid in self._group_of
        self._charged.setdefault(uid, (plan, pod, self._store.now_us()))
        if error.is_refused and uid in self._group_of:
            self._refused.add(uid)
        else:
            self._refused.discard(uid)
        if uid not in self._gone:
            self._failures.note(pod, self._store.now_us(), error)
        if error.is_refused and not may_be_released:
            try:
                await self._refund(plan, pod)
            except StoreUnavailableError as unavailable:
                self._reports.on_trouble(str(unavailable))

    async def _refund(self, plan: CounterPlan, pod: GatedPod) -> None:
        await self._store.refund(plan, pod.waiting.uid)
        self._charged.pop(pod.waiting.uid, None)
        self._silent.discard(pod.waiting.uid)
        self.set_aside(pod)
        self._reports.on_room()

    def _forget_wait(self, uid: str) -> None:
        """Forget a Pod that no longer waits."""
        self._failures.forget(uid)
        self.backoff.forget(uid)
        self._gone.discard(uid)
