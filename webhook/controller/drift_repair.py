"""Holds what stands in the store against the Pods that there are: mends it, and says by how much they differed."""

import asyncio
from collections.abc import Mapping

from webhook.controller.pod_tracker import PodTracker
from webhook.controller.reports import ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.pods.ownership import NOT_LIVE_US, Owned
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger

_TOLD_POLLS = 50


class DriftRepair:
    """Goes through the services with limits on live Pods. One that the store will not answer for holds up no other."""

    def __init__(
        self,
        following: PodTracker,
        telling: SightingSender,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        pace: ControllerTiming,
    ) -> None:
        self._following = following
        self._untold = following.untold
        self._strangers = telling.strangers
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._pace = pace
        self._suspects: dict[str, set[str]] = {}
        """By service: who stood in the store a round ago, and was not there."""
        self._mended: dict[str, tuple[int, float]] = {}
        """By service: the list that it was held against, and when it is due again."""

    async def run(self) -> None:
        """Repair each service as soon as a list has been told, and then again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._pace.round_seconds)
            self._reports.on_watched(len(self._following.roster))
            await self.round()

    async def round(self) -> None:
        """Mend each service that is due."""
        compiled, listed = self._following.compiled, self._following.listed_turn
        if compiled is None or listed is None:
            return
        plans = {plan.service: plan for plan in compiled.plans.values() if plan.standing is not None}
        self._mended = {service: mended for service, mended in self._mended.items() if service in plans}
        self._suspects = {service: uids for service, uids in self._suspects.items() if service in plans}
        due = [plan for plan in plans.values() if self._is_due(plan, listed)]
        live = self._live({plan.service for plan in due}) if due else {}
        for plan in due:
            pause_seconds = self._pace.repair_seconds
            try:
                await self._mend(plan, live[plan.service])
            except StoreUnavailableError:  # it has been told
                pause_seconds = self._pace.longest_retry_seconds
            self._mended[plan.service] = listed, asyncio.get_running_loop().time() + pause_seconds

    def _is_due(self, plan: CounterPlan, listed: int) -> bool:
        before, again_at = self._mended.get(plan.service, (None, 0.0))
        is_new = before != listed and self._untold.is_told(listed, plan.service)
        return is_new or (before is not None and asyncio.get_running_loop().time() >= again_at)

    async def _mend(self, plan: CounterPlan, live: Mapping[str, Owned]) -> None:
        standing = {uid: scope for scope in await self._ledger.scopes(plan) for uid in await self._all(plan, scope)}
        drift = self._compare(plan, live, standing)
        self._reports.on_drift(plan.service, drift)
        if not drift or await self._is_told(plan):
            await self._ledger.counted(plan, sorted({plan.scope_of(pod.namespace) for pod in live.values()}))

    async def _all(self, plan: CounterPlan, scope: str) -> list[str]:
        uids, after = await self._ledger.live(plan, scope)
        found = list(uids)
        while after:
            uids, after = await self._ledger.live(plan, scope, after)
            found += uids
        return found

    def _live(self, services: set[str]) -> dict[str, dict[str, Owned]]:
        """Return, by service, the live Pods that the store has been told of."""
        now_us = self._clock.now_us()
        found: dict[str, dict[str, Owned]] = {service: {} for service in services}
        for uid, pod in self._following.roster:
            if pod.service in found and pod.lives(now_us) and uid not in self._strangers:
                found[pod.service][uid] = pod
        for service, pods in found.items():
            for uid in self._untold.uids(service):
                pods.pop(uid, None)
        return found

    def _compare(self, plan: CounterPlan, live: Mapping[str, Owned], standing: Mapping[str, str]) -> int:
        """Note what differs; return how many did. Who has just come or gone differs by right."""
        service, now_us = plan.service, self._clock.now_us()
        underway = set(self._untold.uids(service))
        missing = [
            uid for uid in live if uid not in standing and uid not in underway and self._lives(uid, plan, now_us)
        ]
        for uid in missing:
            self._following.note(uid, live[uid])
        absent = {uid for uid in standing if uid not in underway and not self._lives(uid, plan, now_us)}
        suspects = {uid for uid in absent if not self._following.is_ahead(uid)}
        surplus = suspects & self._suspects.get(service, set())
        self._suspects[service] = suspects
        for uid in surplus:
            self._following.note(uid, _nobody(service, standing[uid]))
        return len(missing) + len(surplus)

    def _lives(self, uid: str, plan: CounterPlan, now_us: int) -> bool:
        pod = self._following.roster.get(uid)
        return pod is not None and pod.service == plan.service and pod.lives(now_us)

    async def _is_told(self, plan: CounterPlan) -> bool:
        """Wait until all of a service has been told that has been noted by now; False where it takes too long."""
        turn = self._untold.turn
        for _ in range(_TOLD_POLLS):
            if self._untold.is_told(turn, plan.service):
                return True
            await asyncio.sleep(self._pace.round_seconds / _TOLD_POLLS)
        return False


def _nobody(service: str, scope: str) -> Owned:
    """Return a Pod of which only its place is known: it is not there."""
    return Owned(service, scope, "", {}, NOT_LIVE_US, 0, is_sure=True, is_labelled=False)
