"""Gives back what Pods were charged that never came to be, and only theirs.

A Pod that was charged and not seen for 60 s is looked for in the cluster itself. Where it is not there, it never came
to be, or has come and gone while the watch lags: so it is refunded once the watch has reached the version of that look
and still has not shown it. That is at once where Pods change, with the next bookmark, at most about a minute later,
where nothing does. Who was charged before the watch saw everything is not refunded: nobody can tell.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from webhook.controller.pod_tracker import PodTracker
from webhook.controller.reports import NAME_TAKEN, NEVER_CREATED, ControllerReports, ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.pods.ownership import Owned
from webhook.core.quota import CounterPlan, Waiting
from webhook.errors import StoreUnavailableError
from webhook.ports import Clock, PodLedger, PodWatch

_SECOND_US = 1_000_000


class Absence(NamedTuple):
    """A look that did not find a Pod, and what it found instead."""

    version: int
    cause: str


class Refunds:
    """Looks are bounded: some at once, some in a round; the oldest Pods come first."""

    def __init__(
        self,
        following: PodTracker,
        telling: SightingSender,
        watch: PodWatch,
        ledger: PodLedger,
        clock: Clock,
        reports: ControllerReports,
        pace: ControllerTiming,
    ) -> None:
        self._following = following
        self._strangers = telling.strangers
        self._watch = watch
        self._ledger = ledger
        self._clock = clock
        self._reports = reports
        self._pace = pace
        self._absences: dict[str, dict[str, Absence]] = {}
        """By tag and uid."""
        self._first = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            tags = await self.round()
            await asyncio.sleep(max(self._pace.round_seconds, tags * self._pace.tag_seconds))

    async def round(self) -> int:
        """Go once through all tags; return how many there are."""
        compiled = self._following.compiled
        if compiled is None or self._following.listed_turn is None or self._watch.continuity is None:
            return 0  # who is there is not known yet
        tags = {plan.tag: plan for plan in compiled.plans.values()}
        self._absences = {tag: absences for tag, absences in self._absences.items() if tag in tags}
        looks, self._first = self._pace.looks_per_round, self._first + 1
        first = self._first % len(tags)  # no tag has the first word always
        for plan in (*tags.values(), *tags.values())[first : first + len(tags)]:
            try:
                looks -= await self._of_tag(plan, looks)
            except StoreUnavailableError:
                continue  # it has been told; the next round asks again
        return len(tags)

    async def _of_tag(self, plan: CounterPlan, looks_max: int) -> int:
        """Settle what can be settled of one tag; return how often the cluster was asked."""
        age_us = int(self._pace.overdue_seconds * _SECOND_US)
        waiting = await self._ledger.overdue(plan, age_us, self._pace.overdue_max)
        known = self._absences.pop(plan.tag, {})
        absences = self._absences[plan.tag] = {one.uid: known[one.uid] for one in waiting if one.uid in known}
        await self._give_up(plan, [one for one in waiting if not self._is_seen(one) and not self._is_provable(one)])
        await self._see(plan, [one.uid for one in waiting if self._is_seen(one)])
        asked = [one for one in waiting if one.uid not in absences and self._may_be_absent(one)][:looks_max]
        gate = asyncio.Semaphore(self._pace.looks_at_once)
        await asyncio.gather(*(self._look(plan, one, gate) for one in asked))
        for one in waiting:
            absence, reached = absences.get(one.uid), self._watch.continuity
            if absence is None or reached is None or reached.version < absence.version:
                continue
            # Asked again: while others were settled the watch may have shown it, or have begun anew.
            if self._may_be_absent(one) and await self._ledger.refund(plan, one.uid):
                self._reports.on_refunded(one.service or plan.service, absence.cause)
        return len(asked)

    def _is_seen(self, one: Waiting) -> bool:
        return one.uid in self._following.roster or one.uid in self._following.untold

    def _is_provable(self, one: Waiting) -> bool:
        """Say whether the watch would have shown it, had it come to be."""
        reached = self._watch.continuity
        if not one.name or reached is None:
            return False
        since_us = max(reached.since_us, self._following.roster.forgotten_us)
        return self._clock.now_us() - one.age_us >= since_us + self._pace.skew_seconds * _SECOND_US

    def _may_be_absent(self, one: Waiting) -> bool:
        return self._is_provable(one) and not self._is_seen(one)

    async def _give_up(self, plan: CounterPlan, unproven: Sequence[Waiting]) -> None:
        if unproven and self._watch.continuity is not None:
            await self._ledger.let_be(plan, [one.uid for one in unproven])
            for one in unproven:
                self._reports.on_unproven(one.service or plan.service)

    async def _see(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        """Have the store hear again of Pods that came to be; those that have gone, or are others', it forgets."""
        let_be = []
        for uid in uids:
            found = self._following.roster.get(uid)
            if found is not None and self._is_of(found, plan) and uid not in self._strangers:
                self._following.note(uid, found)
            elif uid not in self._following.untold:
                let_be.append(uid)
        if let_be:
            await self._ledger.let_be(plan, let_be)

    def _is_of(self, found: Owned, plan: CounterPlan) -> bool:
        compiled = self._following.compiled
        of = compiled.plans.get(found.service) if compiled is not None else None
        return of is not None and of.tag == plan.tag

    async def _look(self, plan: CounterPlan, one: Waiting, gate: asyncio.Semaphore) -> None:
        """Ask the cluster for a Pod by its name."""
        async with gate:
            found = await self._watch.find(one.namespace, one.name)
        if found is None:
            return
        if found.pod is None or found.pod.metadata.uid != one.uid:
            cause = NEVER_CREATED if found.pod is None else NAME_TAKEN
            self._absences[plan.tag][one.uid] = Absence(found.version, cause)
            return
        came_to_be = await self._following.judge(found.pod)
        if came_to_be is not None and self._is_of(came_to_be, plan):
            self._following.note_ahead(one.uid, came_to_be, found.version)
        else:
            await self._ledger.let_be(plan, [one.uid])
