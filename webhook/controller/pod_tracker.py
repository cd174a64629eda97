"""Takes what the watch brings: judges whose each Pod is, and notes what the store has to hear of it."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from webhook.controller.pending_sightings import PendingSightings
from webhook.controller.pod_index import PodChange, PodIndex
from webhook.controller.reports import ControllerReports
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods import ownership
from webhook.core.pods.ownership import FOREVER_US, Owned
from webhook.ports import Clock, Continuity, NamespaceLabels

_NO_LABELS: Mapping[str, str] = {}


class PodObserver(Protocol):
    """Who is told beside of what the watch brings. It must be quick about it: this is asked of every Pod."""

    def begin(self, compiled: CompiledPolicy | None) -> None:
        """Hear by which policy Pods are judged from now on: all of them are listed anew."""
        ...

    def listed(self, pod: Pod, found: Owned | None) -> None:
        """Take a Pod as a list shows it."""
        ...

    def changed(self, pod: Pod, found: Owned | None) -> None:
        """Take a Pod as it is now."""
        ...

    def gone(self, uid: str) -> None:
        """Hear that a Pod is there no more."""
        ...


class PodTracker:
    """A `ports.PodEventHandler`. Judges by the policy of the newest list's begin: a newer one asks for another list."""

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy | None],
        namespaces: NamespaceLabels,
        clock: Clock,
        continuity: Callable[[], Continuity | None],
        reports: ControllerReports,
        onlookers: Sequence[PodObserver] = (),
    ) -> None:
        self.roster = PodIndex()
        self.untold = PendingSightings()
        self.compiled: CompiledPolicy | None = None
        self.listed_turn: int | None = None
        """The turn of `untold` by which a whole list had been noted, None before there was one under this policy."""
        self._policy = policy
        self._namespaces = namespaces
        self._clock = clock
        self._continuity = continuity
        self._reports = reports
        self._onlookers = onlookers
        self._labels: dict[str, Mapping[str, str] | None] = {}
        """By which Pods of a namespace were judged."""
        self._disbelieved: set[str] = set()
        self._disbelieved_before: set[str] = set()
        """Pods whose label was ignored, since the newest list was begun, and before."""
        self._ends: list[tuple[int, str]] = []
        self._ahead: dict[str, int] = {}
        """Pods that the cluster itself has shown, at which version; the watch may not have come so far yet."""

    async def begin(self) -> None:
        compiled = self._policy()
        if compiled is not self.compiled:
            self.compiled, self.listed_turn = compiled, None
        self._labels.clear()
        self._disbelieved, self._disbelieved_before = set(), self._disbelieved
        self.roster.begin()
        for onlooker in self._onlookers:
            onlooker.begin(self.compiled)

    async def listed(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            found = await self.judge(pod)
            self._take(pod, found)
            for onlooker in self._onlookers:
                onlooker.listed(pod, found)

    async def complete(self) -> None:
        for uid in self.roster.unlisted():
            self._gone(uid, None)
        self._ahead.clear()
        self.listed_turn = self.untold.turn

    async def changed(self, pod: Pod, *, gone: bool) -> None:
        uid, found = pod.metadata.uid, await self.judge(pod)
        if gone:
            self._disbelieved.discard(uid)
            self._gone(uid, found)
            return
        self._take(pod, found)
        for onlooker in self._onlookers:
            onlooker.changed(pod, found)

    def _take(self, pod: Pod, found: Owned | None) -> None:
        uid = pod.metadata.uid
        self._ahead.pop(uid, None)
        if ownership.ignores_label(pod, found) and uid not in self._disbelieved:
            self._disbelieved.add(uid)
            if uid not in self._disbelieved_before:
                self._reports.on_label_ignored()
        change = self.roster.put(uid, found)
        self._note(uid, change)
        if found is not None and 0 <= found.ends_at_us < FOREVER_US and found != change.before:
            heapq.heappush(self._ends, (found.ends_at_us, uid))

    async def passed(self, pod: Pod) -> None:
        if self.roster.get(pod.metadata.uid) is None:
            self._gone(pod.metadata.uid, await self.judge(pod))

    async def judge(self, pod: Pod) -> Owned | None:
        """Return whose a Pod is; a Namespace that is not known is asked for once."""
        compiled, namespace = self.compiled, pod.metadata.namespace
        if compiled is None:
            return None
        if namespace not in self._labels:
            labels = self._namespaces.labels(namespace)
            if labels is None and compiled.matcher.needs_labels(namespace):
                labels = await self._namespaces.look(namespace)
            self._labels[namespace] = labels
        return ownership.owned(pod, compiled, self._labels[namespace] or _NO_LABELS)

    def note(self, uid: str, found: Owned) -> None:
        """Have the store told of a Pod."""
        reached = self._continuity()
        if not self.untold.note(found.service, uid, found, reached.version if reached is not None else 0):
            self.roster.forget_before(self._clock.now_us())

    def note_ahead(self, uid: str, found: Owned, version: int) -> None:
        """Have the store told of a Pod that the cluster itself has shown at a version."""
        self._ahead[uid] = version
        self.note(uid, found)

    def is_ahead(self, uid: str) -> bool:
        """Say whether the cluster has shown a Pod that the watch could not show yet: that it has not is no news."""
        reached, version = self._continuity(), self._ahead.get(uid)
        if version is None or (reached is not None and reached.version >= version):
            self._ahead.pop(uid, None)
            return False
        return True

    def pass_time(self) -> None:
        """Note who has ended by the time alone."""
        now_us = self._clock.now_us()
        while self._ends and self._ends[0][0] < now_us:
            ends_at_us, uid = heapq.heappop(self._ends)
            found = self.roster.get(uid)
            if found is not None and found.ends_at_us == ends_at_us:
                self._note(uid, PodChange(None, found))

    def is_misjudged(self) -> bool:
        """Say whether a policy or labels of Namespaces have come that Pods were not judged by."""
        compiled = self._policy()
        if compiled is None:
            return False
        if compiled is not self.compiled:
            if self.compiled is None or compiled.policy != self.compiled.policy:
                return True
            self.compiled = compiled  # made anew of the same document
        return any(
            self._namespaces.labels(namespace) != labels
            for namespace, labels in self._labels.items()
            if compiled.matcher.needs_labels(namespace)
        )

    def _gone(self, uid: str, last: Owned | None) -> None:
        self._ahead.pop(uid, None)
        for onlooker in self._onlookers:
            onlooker.gone(uid)
        self._note(uid, self.roster.remove(uid, last, self._clock.now_us()))

    def _note(self, uid: str, change: PodChange) -> None:
        before, after = change
        if before is not None and (after is None or after.service != before.service):
            # What it was charged there stays, and nothing more is: it is another's.
            self._note_if_due(uid, replace(ownership.ended(before), created_at_us=0))
        if after is not None and after != before:
            self._note_if_due(uid, after)

    def _note_if_due(self, uid: str, found: Owned) -> None:
        """Note a Pod, unless the store has neither a place for it among the live nor any memory of it."""
        plan = self.compiled.plans.get(found.service) if self.compiled is not None else None
        if plan is None:
            return
        is_due = plan.standing is not None or found.is_young(plan, self._clock.now_us())
        if is_due or self.untold.holds(found.service, uid):
            self.note(uid, found)
