"""Drift repair: compares the live Pods in the store with those in the cluster, and corrects the store."""

import asyncio
from collections.abc import Mapping, Sequence

from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.pods.ownership import NOT_LIVE_US, OwnedPod
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger

_SENT_POLLS_MAX = 50
_SECOND_US = 1_000_000


class DriftRepair:
    """Checks each service with limits on live Pods, independently of the others."""

    def __init__(
        self,
        tracker: PodTracker,
        sighting_sender: SightingSender,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        timing: ControllerTiming,
    ) -> None:
        self._tracker = tracker
        self._pending = tracker.pending
        self._unknown = sighting_sender.unknown
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._timing = timing
        self._suspects: dict[str, set[str]] = {}
        """By service: uids that the store had in the round before, and the cluster had not."""
        self._repaired: dict[str, tuple[int | None, int]] = {}
        """By service: the list that it was compared with, and when it is due again."""

    async def run(self) -> None:
        """Repair each service once a list has been sent to the store, and then periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._timing.round_seconds)
            self._reports.on_watched(len(self._tracker.index))
            await self.round()

    async def round(self) -> None:
        """Repair each service that is due."""
        if self._tracker.listed_turn is None:
            return
        plans = self.list_plans()
        services = {plan.service for plan in plans}
        self._repaired = {service: repaired for service, repaired in self._repaired.items() if service in services}
        self._suspects = {service: uids for service, uids in self._suspects.items() if service in services}
        await self.repair([plan for plan in plans if self._is_due(plan, self._tracker.listed_turn)])

    def list_plans(self) -> Sequence[CounterPlan]:
        """Return the services with limits on live Pods."""
        compiled = self._tracker.compiled
        return [] if compiled is None else [plan for plan in compiled.plans.values() if plan.standing is not None]

    async def repair(self, plans: Sequence[CounterPlan]) -> None:
        """Repair these services, after a complete list. A surplus is corrected if the next repair finds it as well."""
        listed = self._tracker.listed_turn
        live = self._list_live({plan.service for plan in plans}) if plans else {}
        for plan in plans:
            pause_seconds = self._timing.repair_seconds
            try:
                await self._repair_service(plan, live[plan.service])
            except StoreUnavailableError:  # already reported
                pause_seconds = self._timing.retry_seconds_max
            self._repaired[plan.service] = listed, self._clock.now_us() + round(pause_seconds * _SECOND_US)

    def _is_due(self, plan: CounterPlan, listed: int) -> bool:
        before, due_us = self._repaired.get(plan.service, (None, 0))
        is_new = before != listed and self._pending.is_sent(listed, plan.service)
        return is_new or (before is not None and self._clock.now_us() >= due_us)

    async def _repair_service(self, plan: CounterPlan, live: Mapping[str, OwnedPod]) -> None:
        held = [
            (uid, scope) for scope in await self._ledger.list_scopes(plan) for uid in await self._list_uids(plan, scope)
        ]
        standing = dict(held) if not plan.team_key else await self._move_teams(plan, live, held)
        drift = self._compare(plan, live, standing)
        self._reports.on_drift(plan.service, drift)
        if not drift or await self._wait_until_sent(plan):
            await self._ledger.mark_complete(plan, sorted({plan.scope_of(pod) for pod in live.values()}))

    async def _move_teams(
        self, plan: CounterPlan, live: Mapping[str, OwnedPod], held: Sequence[tuple[str, str]]
    ) -> dict[str, str]:
        """Take Pods whose Namespace has another team now from the former one; return the team of all others."""
        moved = [(uid, team) for uid, team in held if uid in live and team != live[uid].team]
        now_us = self._clock.now_us()
        gone = [_make_deleted_pod(plan.service, team).build_sighting(uid, plan, now_us) for uid, team in moved]
        if gone:
            await self._ledger.observe(plan, gone)
        return dict(set(held).difference(moved))

    async def _list_uids(self, plan: CounterPlan, scope: str) -> list[str]:
        uids, after = await self._ledger.list_live(plan, scope)
        found = list(uids)
        while after:
            uids, after = await self._ledger.list_live(plan, scope, after)
            found += uids
        return found

    def _list_live(self, services: set[str]) -> dict[str, dict[str, OwnedPod]]:
        """Return, by service, the live Pods whose state the store has received."""
        now_us = self._clock.now_us()
        found: dict[str, dict[str, OwnedPod]] = {service: {} for service in services}
        for uid, pod in self._tracker.index:
            if pod.service in found and pod.is_live(now_us) and uid not in self._unknown:
                found[pod.service][uid] = pod
        for service, pods in found.items():
            for uid in self._pending.list_uids(service):
                pods.pop(uid, None)
        return found

    def _compare(self, plan: CounterPlan, live: Mapping[str, OwnedPod], standing: Mapping[str, str]) -> int:
        """Enqueue what differs; return the number of differing Pods. Pods still to be sent do not count."""
        service, now_us = plan.service, self._clock.now_us()
        underway = set(self._pending.list_uids(service))
        missing = [
            uid for uid in live if uid not in standing and uid not in underway and self._lives(uid, plan, now_us)
        ]
        for uid in missing:
            self._tracker.enqueue(uid, live[uid])
        absent = {uid for uid in standing if uid not in underway and not self._lives(uid, plan, now_us)}
        suspects = {uid for uid in absent if self._is_gone(uid, service)}
        surplus = suspects & self._suspects.get(service, set())
        self._suspects[service] = suspects
        for uid in surplus:
            self._tracker.enqueue(uid, _make_deleted_pod(service, standing[uid]))
        return len(missing) + len(surplus)

    def _is_gone(self, uid: str, service: str) -> bool:
        """Return whether a Pod that the store counts is no longer the service's."""
        compiled = self._tracker.compiled
        owner = None if compiled is None else compiled.services.get(service)
        if owner is not None and self._tracker.may_have_lost_label(uid, owner):
            return False
        return not self._tracker.is_ahead_of_watch(uid)

    def _lives(self, uid: str, plan: CounterPlan, now_us: int) -> bool:
        pod = self._tracker.index.get(uid)
        return pod is not None and pod.service == plan.service and pod.is_live(now_us)

    async def _wait_until_sent(self, plan: CounterPlan) -> bool:
        """Wait until all that is pending for a service has been sent; False if that takes too long."""
        turn = self._pending.turn
        for _ in range(_SENT_POLLS_MAX):
            if self._pending.is_sent(turn, plan.service):
                return True
            await asyncio.sleep(self._timing.round_seconds / _SENT_POLLS_MAX)
        return False


def _make_deleted_pod(service: str, scope: str) -> OwnedPod:
    """Return a Pod that is not live, and of which only the service and scope are known."""
    return OwnedPod(service, scope, "", {}, NOT_LIVE_US, 0, is_sure=True, is_labelled=False, team=scope)
