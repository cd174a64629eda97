"""Groups among the waiting Pods: which are complete, which wait for members, and which were released before."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.groups.completeness import Completeness, Size, WaitingMember, find_completeness
from webhook.core.policy_fields import GroupSource
from webhook.core.quota import CounterPlan, sum_costs
from webhook.core.quota.pod_cost import format_amount

_PREFIX = "group:"


class GroupKey(NamedTuple):
    """A group: names repeat in other namespaces, services and owners."""

    namespace: str
    service: str
    source: GroupSource
    name: str
    owner: str
    attempt: str
    """Of a JobSet: after a failure it makes all of its Pods again, while some of the former attempt still run."""

    @property
    def uid(self) -> str:
        """Return what stands for the group where a Pod has its uid."""
        return _PREFIX + "/".join(self)


class GatedGroup(Struct, frozen=True, gc=False):
    """A complete group. `waiting` stands for it in the order: as old as its oldest member, and as large as all."""

    key: GroupKey
    waiting: WaitingPod
    members: tuple[GatedPod, ...]
    due_us: int = 0
    """As `GatedPod.due_us`."""

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def pods(self) -> tuple[GatedPod, ...]:
        return self.members


def find_no_size(_: GroupKey) -> Size | None:
    """Return that the size of a group is not known: there is no cluster to read it from."""
    return None


class GroupFacts(Struct, frozen=True):
    """What is known of groups besides their waiting members."""

    find_size: Callable[[GroupKey], Size | None] = find_no_size
    """Returns the size of a group whose Pods do not carry it; None if it is not known yet."""
    is_released: Callable[[GroupKey], bool] = lambda _: False
    """Returns whether members of a group are in the cluster without a gate, and have not ended."""
    find_last_start_us: Callable[[GroupKey], int] = lambda _: 0
    """Returns when the last member of a group was scheduled that is in the cluster and has ended; 0 without one."""
    count_succeeded: Callable[[GroupKey, Collection[str]], int] = lambda _, __: 0
    """Returns how many members of these runs have succeeded, as `GatedPod.run`."""


class GroupChange(NamedTuple):
    """What to do about a group: release `group` in its turn, or `singles` each in its own; the others wait.

    `doubtful` wait for members that may be gone since they ran: they are singles if a former leader charged them.
    """

    key: GroupKey
    group: GatedGroup | None = None
    singles: tuple[GatedPod, ...] = ()
    doubtful: tuple[GatedPod, ...] = ()


def find_key(pod: GatedPod) -> GroupKey | None:
    """Return the group of a waiting Pod, None without one."""
    group, waiting = pod.group, pod.waiting
    return None if group is None else GroupKey(pod.namespace, waiting.service, *group.key, pod.attempt)


class GatedGroups:
    """The waiting members of each group. `list_changes` decides about those that may have changed."""

    def __init__(self, facts: GroupFacts, begun_us: int) -> None:
        """Create it at the beginning of a term of leadership."""
        self._facts = facts
        self._begun_us = begun_us
        self._members: dict[GroupKey, dict[str, GatedPod]] = {}
        self._lacks: dict[GroupKey, str] = {}
        self._changed: set[GroupKey] = set()
        self._key_of: dict[str, GroupKey] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._key_of

    def put(self, key: GroupKey, pod: GatedPod) -> None:
        """Add a waiting member, or replace it: what it was made for may have been relabelled."""
        if self._key_of.get(pod.waiting.uid, key) != key:
            self.remove(pod.waiting.uid)
        self._members.setdefault(key, {})[pod.waiting.uid] = pod
        self._key_of[pod.waiting.uid] = key
        self._changed.add(key)

    def remove(self, uid: str) -> GroupKey | None:
        """Remove a Pod that no longer waits, or waits singly; return its group, None if it is in none."""
        key = self._key_of.pop(uid, None)
        if key is not None:
            members = self._members[key]
            del members[uid]
            if not members:
                del self._members[key]
                self._lacks.pop(key, None)
            self._changed.add(key)
        return key

    def find_lack(self, uid: str) -> str:
        """Return what is missing of the group of a waiting Pod; "" of a complete one, and for other Pods."""
        key = self._key_of.get(uid)
        return "" if key is None else self._lacks.get(key, "")

    def count_incomplete(self) -> Mapping[str, int]:
        """Return how many groups of each service wait for something else than room."""
        return Counter(key.service for key, lack in self._lacks.items() if lack)

    def list_keys(self) -> Iterator[GroupKey]:
        """Return the groups that have waiting members."""
        return iter(self._members)

    def review(self, key: GroupKey) -> None:
        """Decide about a group again."""
        self._changed.add(key)

    def review_all(self) -> None:
        """Decide about all groups again: sizes, plans or other Pods may have changed, or time has passed."""
        self._changed.update(self._members)

    def list_changes(self, plans: Mapping[str, CounterPlan], now_us: int) -> Iterator[GroupChange]:
        """Yield what to do about each group that may have changed since the last call."""
        while self._changed:
            key = self._changed.pop()
            members = self._members.get(key)
            yield GroupChange(key) if members is None else self._decide(key, members, plans.get(key.service), now_us)

    def _decide(
        self, key: GroupKey, members: Mapping[str, GatedPod], plan: CounterPlan | None, now_us: int
    ) -> GroupChange:
        rules = plan.queue.groups if plan is not None and plan.queue is not None else None
        if rules is None or self._facts.is_released(key):
            return GroupChange(key, singles=tuple(members.values()))
        # Who was there when others started was released with them, perhaps by a former leader.
        started_us = self._facts.find_last_start_us(key)
        if left := tuple(pod for pod in members.values() if 0 < pod.created_us <= started_us):
            return GroupChange(key, singles=left)
        found = self._find_completeness(key, members, rules.size_max)
        asked = describe_asked(plan, [pod.waiting for pod in members.values()]) if plan and found.is_short else ""
        self._lacks[key] = f"{found.lacks}; they ask for {asked}" if asked else found.lacks
        if found.complete:
            return GroupChange(key, build_group(key, tuple(members[uid] for uid in found.complete)))
        oldest_us = min(pod.waiting.since_us for pod in members.values())
        if not rules.keeps_incomplete and now_us - oldest_us >= rules.wait_us:
            return GroupChange(key, singles=tuple(members.values()))
        if now_us - max(oldest_us, self._begun_us) >= rules.wait_us:
            before = (pod for pod in members.values() if pod.waiting.since_us <= self._begun_us)
            return GroupChange(key, doubtful=tuple(before))
        return GroupChange(key)

    def _find_completeness(self, key: GroupKey, members: Mapping[str, GatedPod], size_max: int) -> Completeness:
        waiting = [
            WaitingMember(uid, pod.group, pod.waiting.since_us) for uid, pod in members.items() if pod.group is not None
        ]
        # The size of a Job is what is left of it.
        runs = {pod.run for pod in members.values()} - {""} if key.source is not GroupSource.JOB else set[str]()
        succeeded = self._facts.count_succeeded(key, runs) if runs else 0
        return find_completeness(waiting, self._facts.find_size(key), size_max, succeeded)


def describe_asked(plan: CounterPlan, waiting: Iterable[WaitingPod]) -> str:
    """Return what Pods ask for together of the limited resources besides `pods`, such as `requests.cpu 32`."""
    cost, limited = sum_costs(pod.cost for pod in waiting), {limit.counts for _, _, limit in plan.limits} - {"pods"}
    return ", ".join(f"{name} {format_amount(name, cost[name])}" for name in sorted(limited) if cost.get(name))


def build_group(key: GroupKey, members: tuple[GatedPod, ...]) -> GatedGroup:
    """Return a complete group of these members."""
    waiting = [pod.waiting for pod in members]
    first = waiting[0]
    together = WaitingPod(
        key.uid,
        key.service,
        min(pod.since_us for pod in waiting),
        sum_costs(pod.cost for pod in waiting),
        first.scope,
        max(pod.priority for pod in waiting),
    )
    return GatedGroup(key, together, members)
