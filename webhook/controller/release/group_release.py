"""Release of groups: between the watch and the releaser, which sees complete groups, and Pods that wait alone."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.controller.release.actions import Released
from webhook.controller.release.charging import ReleaseStore, charge, is_charged
from webhook.controller.release.gated_groups import GatedGroups, GroupChange, GroupFacts, GroupKey, find_key
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.releaser import PodReleaser
from webhook.controller.release.store_troubles import StoreTroubles
from webhook.core.quota import CounterPlan
from webhook.core.reporting.queue_document import WaitingGroups


class _Vacancy(Struct, frozen=True):
    """The charge of a member that vanished before its gate was removed: it is kept for the Pod that replaces it."""

    plan: CounterPlan
    pod: GatedPod
    until_us: int


class GroupRelease:
    """The groups of the waiting Pods. `update` passes on to the releaser what has changed."""

    def __init__(self, releaser: PodReleaser, store: ReleaseStore, facts: GroupFacts, troubles: StoreTroubles) -> None:
        self._releaser = releaser
        self._store = store
        self._groups = GatedGroups(facts, releaser.time.now_us())
        self._uncharged: set[str] = set()
        """Waiting members that no former leader has charged."""
        self._vacancies: dict[GroupKey, list[_Vacancy]] = {}
        self._troubles = troubles
        self._replacing: list[tuple[CounterPlan, GatedPod]] = []
        """Pods that have taken the share of a vanished member, and are in no queue."""

    def put(self, pod: GatedPod) -> None:
        """Add a Pod that waits, or that has changed."""
        key = find_key(pod)
        if key is not None:
            self._groups.put(key, pod)
        self._releaser.put(pod, is_apart=key is not None)

    def remove(self, uid: str) -> str | None:
        """Remove a Pod that was deleted, or whose gate was removed; return its service, None if it is unknown."""
        self._groups.remove(uid)
        self._uncharged.discard(uid)
        return self._releaser.remove(uid)

    def take(self, whole: Released) -> tuple[GatedPod, ...]:
        """Return the Pods to release at once; they no longer wait."""
        for pod in whole.pods:
            self._groups.remove(pod.waiting.uid)
            self._uncharged.discard(pod.waiting.uid)
        return tuple(replace(pod, due_us=whole.due_us) for pod in whole.pods)

    def find_lack(self, uid: str) -> str:
        """Return what is missing of the group of a waiting Pod, "" if nothing is."""
        return self._groups.find_lack(uid)

    def count(self, plans: Mapping[str, CounterPlan]) -> Mapping[str, WaitingGroups]:
        """Return the waiting groups of each service that has rules for groups."""
        complete = Counter(group.key.service for group in self._releaser.pods.groups.values())
        incomplete = self._groups.count_incomplete()
        return {
            name: WaitingGroups(complete[name], incomplete.get(name, 0))
            for name, plan in plans.items()
            if plan.queue is not None and plan.queue.groups is not None
        }

    def list_keys(self) -> tuple[GroupKey, ...]:
        """Return the groups that have waiting members."""
        return tuple(self._groups.list_keys())

    def keep_share(self, plan: CounterPlan, pod: GatedPod) -> None:
        """Keep the charge of a member that vanished while its group was released."""
        key, rules = find_key(pod), plan.queue.groups if plan.queue is not None else None
        wait_us = rules.wait_us if rules is not None else 0
        if key is not None:
            self._vacancies.setdefault(key, []).append(_Vacancy(plan, pod, self._releaser.time.now_us() + wait_us))

    def review_all(self) -> None:
        """Decide about all groups again in the next update: sizes or other Pods may have changed."""
        self._groups.review_all()

    async def update(self, plans: Mapping[str, CounterPlan]) -> list[tuple[CounterPlan, GatedPod]]:
        """Pass on what has changed; return the Pods that have taken the share of a vanished member.

        Groups about which the store gives no answer wait until the next call.
        """
        now_us, silent = self._releaser.time.now_us(), set[GroupKey]()
        for change in self._groups.list_changes(plans, now_us):
            silent.add(change.key)
            with self._troubles.pass_over():
                await self._apply(change, plans, now_us)
                silent.remove(change.key)
        for key in silent:
            self._groups.review(key)
        await self._refund_vacancies(now_us)
        replacing, self._replacing = self._replacing, []
        return replacing

    async def _apply(self, change: GroupChange, plans: Mapping[str, CounterPlan], now_us: int) -> None:
        if change.group is not None:
            self._releaser.put_group(change.group)
            self._end_vacancies(change.key)
            return
        self._releaser.drop_group(change.key.uid)
        for pod in (*change.singles, *await self._find_charged(change.doubtful, plans)):
            vacancy = None if now_us < self._releaser.held_until_us else self._find_vacancy(change.key, pod)
            plan = plans.get(pod.waiting.service)
            if vacancy and plan is not None and await self._take_over(change.key, vacancy, pod, plan):
                self.remove(pod.waiting.uid)
                self._replacing.append((plan, replace(pod, due_us=now_us)))
            else:
                self._groups.remove(pod.waiting.uid)
                self._releaser.put(pod)

    async def _find_charged(self, doubtful: Sequence[GatedPod], plans: Mapping[str, CounterPlan]) -> Sequence[GatedPod]:
        """Return the members that a former leader has charged: it began to release their group."""
        found = list[GatedPod]()
        for pod in doubtful:
            plan, uid = plans.get(pod.waiting.service), pod.waiting.uid
            if plan is None or uid in self._uncharged:
                continue
            if await is_charged(self._store, plan, pod):
                found.append(pod)
            else:
                self._uncharged.add(uid)
        return found

    def _find_vacancy(self, key: GroupKey, pod: GatedPod) -> _Vacancy | None:
        """Return the share of the member that a Pod replaces: with the same index, if they have any."""
        index = pod.group.index if pod.group is not None else ""
        vacancies = self._vacancies.get(key, [])
        return next((one for one in vacancies if one.pod.group is not None and one.pod.group.index == index), None)

    async def _take_over(self, key: GroupKey, vacancy: _Vacancy, pod: GatedPod, plan: CounterPlan) -> bool:
        """Charge a Pod instead of the one that it replaces; False if it asks for more, and waits for room."""
        await self._store.refund(vacancy.plan, vacancy.pod.waiting.uid)
        self._vacancies[key].remove(vacancy)
        receipt = await charge(self._store, plan, pod)
        return receipt is not None and receipt.charged

    def _end_vacancies(self, key: GroupKey) -> None:
        """Let the shares of a group go that gathers anew: all of its members are charged again."""
        if key in self._vacancies:
            self._vacancies[key] = [replace(one, until_us=0) for one in self._vacancies[key]]

    async def _refund_vacancies(self, now_us: int) -> None:
        for key, vacancies in tuple(self._vacancies.items()):
            with self._troubles.pass_over():
                for vacancy in [one for one in vacancies if one.until_us <= now_us]:
                    await self._store.refund(vacancy.plan, vacancy.pod.waiting.uid)
                    vacancies.remove(vacancy)
            if not vacancies:
                del self._vacancies[key]
