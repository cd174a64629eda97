"""Gate removal: removes the gates of charged Pods concurrently, and tries again what failed.

A charge is kept until it is known whether the gate is removed, but not for long: it will leave its window.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from webhook.controller.release.failures import ReleaseFailures
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.group_removal import GroupRemoval, GroupRemovals
from webhook.controller.release.observed_gates import ObservedGates
from webhook.controller.release.pod_backoff import PodBackoff
from webhook.controller.release.rate_limit import ReleaseRateLimit
from webhook.controller.release.removal_attempts import Answer, RemovalAttempts
from webhook.core.quota import CounterPlan
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import Clock, CounterStore, QueueIndex

_REFUSALS_MAX = 16
"""Refusals in a row from which the Pods of a service are tried one at a time: the cause may concern all of them."""
_RESERVED_US = 30_000_000
_REFUNDS_PER_CALL_MAX = 64
_UNTRIED = "cannot release: no answer in time to other calls in its namespace"


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

    - Each attempt counts in the rate of releases.
    - Without an answer the Pod stays charged, and its gate is removed again each second. After 30 s it is refunded,
      unless it is gone: an attempt may have removed its gate, and it may have run.
    - A refusal concerns one Pod: it is refunded, unless an earlier attempt may have removed the gate. Nothing but that
      is tried until the store has answered: it may have done it.
    - Of a group one gate is removed first. If that is refused, or is not answered for 30 s, the group is refunded. Once
      a gate is removed, the others stay charged, and are removed again each second, after a refusal as Pods that are
      set aside.
    - A refunded Pod is set aside, a group as a whole: others take their turn. It waits again, as old as it is, after
      5 s, then 10 s, at most 60 s; at once if it has changed, or if another Pod of its service that was refused is
      released.
    """

    def __init__(
        self,
        store: CounterStore,
        index: QueueIndex,
        gates: ObservedGates,
        failures: ReleaseFailures,
        limit: ReleaseRateLimit,
        reports: RemovalReports,
        clock: Clock,
    ) -> None:
        self._store = store
        self._clock = clock
        self._gates = gates
        self._index = index
        self._failures = failures
        self._reports = reports
        self.attempts = RemovalAttempts(gates, limit, clock.now_us, self._note_answer, self._forget_attempt)
        self.groups = GroupRemovals(self.attempts)
        self._charged: dict[str, tuple[CounterPlan, GatedPod, int]] = {}
        """Charged Pods whose gates may still be there, and since when."""
        self._silent: set[str] = set()
        """Charged Pods of which an attempt had no answer: it may have removed the gate."""
        self._refunding: set[str] = set()
        """Those whose refund has begun, and was not answered."""
        self.backoff = PodBackoff(reports.on_waiting)
        self._gone: set[str] = set()
        """Pods that were deleted, or whose gates were removed, while their removal ran."""
        self._left: dict[str, tuple[CounterPlan, list[str]]] = {}
        """Pods that have left the queue and are still in the index, by service."""
        self._refused: set[str] = set()
        """Members of groups whose last removal was refused: others of their services need not wait for them."""
        self._refusals = Counter[str]()
        """Removals in a row that were refused, by service."""

    def __contains__(self, uid: str) -> bool:
        return uid in self.attempts or self.is_charged(uid) or uid in self.backoff

    @property
    def slow_services(self) -> AbstractSet[str]:
        """Services whose Pods should be tried one a second: all the last ones were refused."""
        return {service for service, count in self._refusals.items() if count >= _REFUSALS_MAX}

    @property
    def held_services(self) -> AbstractSet[str]:
        """Services whose Pods should not be charged now: slow ones, and those with charged Pods without an answer.

        What had no answer while the API server gave none holds nobody, so that higher classes go on first.
        """
        now_us, asked = self._clock.now_us(), self._refused | self._refunding
        silent = (
            pod.waiting.service
            for uid, (_, pod, since_us) in self._charged.items()
            if uid not in asked
            and self._has_failed_since_recovery(uid)
            and (now_us - since_us < _RESERVED_US or not self.groups.has_begun(uid))
        )
        return {*silent} | self.slow_services | self.attempts.hung_services

    def _has_failed_since_recovery(self, uid: str) -> bool:
        failure = self._failures.get(uid)
        return failure is None or failure.at_us >= self._gates.recovered_us

    def is_charged(self, uid: str) -> bool:
        return uid in self._charged or self.groups.find(uid) is not None

    def _forget_attempt(self, uid: str) -> None:
        if uid not in self:
            self._gone.discard(uid)
            self.backoff.forget(uid)
        if uid not in self._charged:
            self._refused.discard(uid)
            self._silent.discard(uid)

    def set_aside(self, pod: GatedPod, error: GateError | None = None) -> None:
        """Let a Pod wait again, but not at once; `error` says why it was not released or deleted."""
        now_us = self._clock.now_us()
        if error is not None and pod.waiting.uid not in self._gone:
            self._failures.note(pod, now_us, error)
        self._set_aside(pod, now_us + self._failures.find_pause_us(pod.waiting.uid))

    def _set_aside(self, pod: GatedPod, until_us: int) -> None:
        if pod.waiting.uid in self._gone:
            self._forget_wait(pod.waiting.uid)
        else:
            self.backoff.add(pod, until_us)

    def update_pod(self, pod: GatedPod) -> None:
        """Replace a Pod that has changed."""
        self._failures.update_pod(pod)
        self.backoff.update_pod(pod)

    def remove(self, uid: str) -> None:
        """Forget a Pod that is deleted, or no longer has a gate; a charged one is tried again."""
        self._forget_wait(uid)
        if uid in self:
            self._gone.add(uid)

    def return_unanswered(self) -> None:
        """Let Pods wait again that were set aside while the API server gave no answer."""
        failures, since_us = self._failures.list_failures(), self._gates.outage_us
        unanswered = [one for one in failures if one.reason == "unanswered" and one.at_us >= since_us]
        self.backoff.return_soon(one.pod.waiting.uid for one in unanswered)

    async def update_index(self) -> None:
        """Remove the Pods that have left the queue from the index, those of one service in one call."""
        left, self._left = self._left, {}
        for plan, uids in left.values():
            with suppress(StoreUnavailableError):  # then the loop does it when it mends the index
                await self._index.forget(plan, uids)

    async def retry(self, now_us: int) -> None:
        """Remove gates again as the rate allows; refund what is charged for too long; called once a second."""
        silent = set[str]()
        """Services about which the store gave no answer."""
        for uid, (plan, pod, since_us) in tuple(self._charged.items()):
            if uid in self.attempts or uid not in self._charged or plan.service in silent:
                continue
            self._charged[uid] = self._charged.pop(uid)  # others are the first the next time
            try:
                await self._retry(plan, pod, now_us, is_reserved=now_us - since_us < _RESERVED_US)
            except StoreUnavailableError as error:
                self._reports.on_trouble(str(error))
                silent.add(plan.service)
        self.groups.try_refused()
        self.groups.go_on_all()
        self.backoff.return_due(now_us, self.slow_services)

    async def _retry(self, plan: CounterPlan, pod: GatedPod, now_us: int, *, is_reserved: bool) -> None:
        """Try a charged Pod again, or refund it, with its group."""
        uid, group = pod.waiting.uid, self.groups.find(pod.waiting.uid)
        if group is not None and group.has_begun:
            if not self._failures.is_pausing(uid, now_us):
                group.untried[uid] = pod
        elif group is not None and (group.is_given_up or not (is_reserved or uid in self._gone)):
            await self._refund_group(group)
        elif uid in self._refunding:
            await self._refund(plan, pod)
        elif group is not None or is_reserved:
            if self.attempts.has_room(pod.namespace):
                self.attempts.start(plan, pod)
        elif uid in self._gone:
            # An attempt without an answer may have removed the gate: the charge stays.
            self._forget_charge(uid)
            self._forget_wait(uid)
        else:
            await self._refund(plan, pod)

    async def _note_answer(self, plan: CounterPlan | None, pod: GatedPod, answer: Answer) -> None:
        try:
            if isinstance(answer, bool):
                await self._note_removal(plan, pod, is_there=answer)
            else:
                await self._note_failure(plan, pod, answer)
        except StoreUnavailableError as error:
            self._reports.on_trouble(str(error))
            if plan is not None:
                self._charged.setdefault(pod.waiting.uid, (plan, pod, self._clock.now_us()))

    async def _note_removal(self, plan: CounterPlan | None, pod: GatedPod, *, is_there: bool) -> None:
        """Note that the gate of a Pod is removed, or that the Pod is gone."""
        uid, service, is_silent = pod.waiting.uid, pod.waiting.service, pod.waiting.uid in self._silent
        self._refusals.pop(service, None)
        group, had_failed = self.groups.find(uid), self._failures.forget(uid)
        if had_failed:
            self.backoff.note_released(service)
        if is_there:
            self._reports.on_released(pod)
        elif group is not None:
            self._reports.on_vanished(group.plan, pod)
        elif plan is not None and not is_silent:
            await self._store.refund(plan, uid)
            self._reports.on_room()
        self._charged.pop(uid, None)
        self._forget_wait(uid)
        if plan is not None:
            self._left.setdefault(plan.service, (plan, []))[1].append(uid)
        if group is not None:
            self.groups.forget(uid)
            # One that is gone may have been released by an attempt without an answer.
            group.remove(uid, has_begun=is_there or is_silent)
            if had_failed:
                self.groups.try_all(group)
            self.groups.go_on(group)

    async def _note_failure(self, plan: CounterPlan | None, pod: GatedPod, error: GateError | None) -> None:
        """Note that a gate was not removed; without an error it was not tried."""
        uid, service, group = pod.waiting.uid, pod.waiting.service, self.groups.find(pod.waiting.uid)
        if error is None:
            error, is_unchanged = GateError(f"{pod.namespace}/{pod.name}", _UNTRIED), True
        elif is_unchanged := error.is_refused:
            self._refusals[service] = min(self._refusals[service] + 1, _REFUSALS_MAX)
            if group is not None:
                group.note_refusal()
        else:
            self._silent.add(uid)
        for one in (pod,) if group is None or group.has_begun else group.pods.values():
            if one.waiting.uid not in self._gone:
                self._failures.note(one, self._clock.now_us(), error)
        if plan is None:
            self.set_aside(pod)
            return
        may_be_released = uid in self._charged if group is None else group.has_begun or uid in self._silent
        self._charged.setdefault(uid, (plan, pod, self._clock.now_us()))
        (self._refused.add if error.is_refused and group is not None else self._refused.discard)(uid)
        if is_unchanged and not may_be_released:
            await (self._refund(plan, pod) if group is None else self._refund_group(group))

    async def _refund_group(self, group: GroupRemoval) -> None:
        """Refund a group, and set its members aside together: they wait again at once."""
        group.is_given_up, uids = True, tuple(group.pods)
        for first in range(0, len(uids), _REFUNDS_PER_CALL_MAX):
            some = uids[first : first + _REFUNDS_PER_CALL_MAX]
            await asyncio.gather(*(self._store.refund(group.plan, uid) for uid in some))
        until_us = self._clock.now_us() + max(map(self._failures.find_pause_us, uids))
        for uid in uids:
            self.groups.forget(uid)
            self._forget_charge(uid)
            self._set_aside(group.pods.pop(uid), until_us)
        self._reports.on_room()

    async def _refund(self, plan: CounterPlan, pod: GatedPod) -> None:
        self._refunding.add(pod.waiting.uid)
        await self._store.refund(plan, pod.waiting.uid)
        self._forget_charge(pod.waiting.uid)
        self.set_aside(pod)
        self._reports.on_room()

    def _forget_charge(self, uid: str) -> None:
        self._charged.pop(uid, None)
        self._refunding.discard(uid)
        self._silent.discard(uid)
        self._refused.discard(uid)

    def _forget_wait(self, uid: str) -> None:
        """Forget a Pod that no longer waits."""
        self._failures.forget(uid)
        self.backoff.forget(uid)
        self._gone.discard(uid)
