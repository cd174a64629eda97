"""Lifecycle of watched Pods: assigns each to its service, and queues its creation, changes and end for the store."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from webhook.controller.pending_sightings import PendingSightings
from webhook.controller.pod_index import PodChange, PodIndex
from webhook.controller.reports import ControllerReports
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.pods import ownership
from webhook.core.pods.ownership import FOREVER_US, OwnedPod
from webhook.core.policy.model import Service
from webhook.ports import Clock, Continuity, NamespaceLabels

_NO_LABELS: Mapping[str, str] = {}


class PodObserver(Protocol):
    """Further receiver of the watch's Pods. It is called for every Pod, so it must be fast."""

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        """Start a list under a policy."""
        ...

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        """Handle a Pod of a list."""
        ...

    def on_list_complete(self) -> None:
        """End the list; `on_deleted` was called for earlier Pods that are not in it."""
        ...

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        """Handle a created or changed Pod."""
        ...

    def on_deleted(self, uid: str) -> None:
        """Handle a deletion."""
        ...


class PodTracker:
    """A `ports.PodEventHandler`. Uses the policy as of the newest list's start; a newer policy needs another list."""

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy | None],
        namespaces: NamespaceLabels,
        clock: Clock,
        continuity: Callable[[], Continuity | None],
        reports: ControllerReports,
        observers: Sequence[PodObserver] = (),
    ) -> None:
        self.index = PodIndex()
        self.pending = PendingSightings()
        self.compiled: CompiledPolicy | None = None
        self.listed_turn: int | None = None
        """The turn of `pending` after a complete list, None before the first one under this policy."""
        self._policy = policy
        self._namespaces = namespaces
        self._clock = clock
        self._continuity = continuity
        self._reports = reports
        self._observers = observers
        self._labels: dict[str, Mapping[str, str] | None] = {}
        """Labels of each namespace, as used since the newest list's start."""
        self._bare: dict[str, tuple[str, int]] = {}
        """Namespace and end of each Pod without service and service label, in namespaces of services."""
        self._ignored_labels: set[str] = set()
        self._ignored_labels_before: set[str] = set()
        """Pods whose service label was ignored, since the newest list's start, and before."""
        self._unowned: set[str] = set()
        """Pods of the newest list that the index lacks, while the watch repeats what is older than the list."""
        self._recounted: set[str] = set()
        """Services whose live Pods are counted elsewhere, or by other resources, since the latest complete list."""
        self._ends: list[tuple[int, str]] = []
        self._ahead_of_watch: dict[str, int] = {}
        """Versions at which a direct lookup returned Pods; the watch may not have reached them yet."""

    async def on_list_begun(self) -> None:
        compiled = self._policy()
        if compiled is not self.compiled:
            self._recounted |= _list_recounted(self.compiled, compiled)
            self.compiled, self.listed_turn = compiled, None
        self._labels.clear()
        self._bare.clear()
        self._unowned.clear()
        self._ignored_labels, self._ignored_labels_before = set(), self._ignored_labels
        self.index.begin_list()
        for observer in self._observers:
            observer.on_list_begun(self.compiled)

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            found = await self._find_known_owner(pod)
            self._track(pod, found)
            if found is None:
                self._unowned.add(pod.metadata.uid)
            for observer in self._observers:
                observer.on_listed(pod, found)

    async def on_list_complete(self) -> None:
        for uid in self.index.take_unlisted():
            self._track_deletion(uid, None)
        for observer in self._observers:
            observer.on_list_complete()
        self._ahead_of_watch.clear()
        self._recounted.clear()
        self.listed_turn = self.pending.turn

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        uid, found = pod.metadata.uid, await self._find_known_owner(pod)
        self._unowned.clear()  # this is newer than the list
        if gone:
            self._ignored_labels.discard(uid)
            self._track_deletion(uid, found)
            return
        self._track(pod, found)
        for observer in self._observers:
            observer.on_changed(pod, found)

    def _track(self, pod: Pod, found: OwnedPod | None) -> None:
        uid = pod.metadata.uid
        self._ahead_of_watch.pop(uid, None)
        if ownership.ignores_label(pod, found) and uid not in self._ignored_labels:
            self._ignored_labels.add(uid)
            if uid not in self._ignored_labels_before:
                self._reports.on_label_ignored()
        self._note_bare(pod, found)
        change = self.index.put(uid, found)
        self._enqueue_change(uid, change)
        if found is not None and 0 <= found.ends_at_us < FOREVER_US and found != change.before:
            heapq.heappush(self._ends, (found.ends_at_us, uid))

    def _note_bare(self, pod: Pod, found: OwnedPod | None) -> None:
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        self._bare.pop(uid, None)
        is_bare = found is None and SERVICE_LABEL not in pod.labels
        if is_bare and self.compiled is not None and self.compiled.matcher.list_candidates(namespace):
            self._bare[uid] = namespace, ownership.compute_end_us(pod)

    def may_have_lost_label(self, uid: str, service: Service) -> bool:
        """Return whether a Pod lives that no service owns, and that `service` may have owned before it was relabelled.

        Its label is guarded while a server runs. The store may know whose it was.
        """
        namespace, ends_at_us = self._bare.get(uid, ("", ownership.NOT_LIVE_US))
        if self.compiled is None or self._clock.now_us() > ends_at_us:
            return False
        labels = self._labels.get(namespace) or _NO_LABELS
        return self.compiled.matcher.may_own(service, namespace, labels)

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        if gone:
            self._ignored_labels.discard(uid)
            self._track_deletion(uid, None)
        else:
            self.index.keep(uid)
            self._unowned.add(uid)

    async def on_passed(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self.index.get(uid) is None and uid not in self._unowned:
            self._track_deletion(uid, await self.find_owner(pod))

    async def _find_known_owner(self, pod: Pod) -> OwnedPod | None:
        """Return a Pod with its service; one that is known stays with its service if it loses its label."""
        found, before = await self.find_owner(pod), self.index.get(pod.metadata.uid)
        if before is None or self.compiled is None:
            return found
        return ownership.update_known(pod, before, found, self.compiled)

    async def find_owner(self, pod: Pod) -> OwnedPod | None:
        """Return a Pod with its service, None where it has none; an unknown Namespace is looked up once."""
        compiled, namespace = self.compiled, pod.metadata.namespace
        if compiled is None:
            return None
        if namespace not in self._labels:
            labels = self._namespaces.find_labels(namespace)
            if labels is None and compiled.matcher.needs_labels(namespace):
                labels = await self._namespaces.look_up_labels(namespace)
            self._labels[namespace] = labels
        return ownership.find_ownership(pod, compiled, self._labels[namespace] or _NO_LABELS)

    def enqueue(self, uid: str, found: OwnedPod) -> None:
        """Queue a Pod's state for the store."""
        reached = self._continuity()
        if not self.pending.put(found.service, uid, found, reached.version if reached is not None else 0):
            self.index.forget_before(self._clock.now_us())

    def enqueue_from_lookup(self, uid: str, found: OwnedPod, version: int) -> None:
        """Queue a Pod that a direct lookup returned at a version."""
        self._ahead_of_watch[uid] = version
        self.enqueue(uid, found)

    def is_ahead_of_watch(self, uid: str) -> bool:
        """Return whether a direct lookup returned a Pod at a version that the watch has not reached."""
        reached, version = self._continuity(), self._ahead_of_watch.get(uid)
        if version is None or (reached is not None and reached.version >= version):
            self._ahead_of_watch.pop(uid, None)
            return False
        return True

    def enqueue_ended(self) -> None:
        """Queue Pods whose grace period has passed."""
        now_us = self._clock.now_us()
        while self._ends and self._ends[0][0] < now_us:
            ends_at_us, uid = heapq.heappop(self._ends)
            found = self.index.get(uid)
            if found is not None and found.ends_at_us == ends_at_us:
                self._enqueue_change(uid, PodChange(None, found))

    def needs_new_list(self) -> bool:
        """Return whether the policy, or a Namespace label that it reads, has changed since the list started."""
        compiled = self._policy()
        if compiled is None:
            return False
        if compiled is not self.compiled:
            if self.compiled is None or not compiled.assigns_as(self.compiled):
                return True
            self.compiled = compiled  # compiled again from the same document
        return any(
            compiled.may_assign_anew(
                namespace, labels or _NO_LABELS, self._namespaces.find_labels(namespace) or _NO_LABELS
            )
            for namespace, labels in self._labels.items()
        )

    def _track_deletion(self, uid: str, last: OwnedPod | None) -> None:
        self._ahead_of_watch.pop(uid, None)
        self._bare.pop(uid, None)
        for observer in self._observers:
            observer.on_deleted(uid)
        self._enqueue_change(uid, self.index.mark_deleted(uid, last, self._clock.now_us()))

    def _enqueue_change(self, uid: str, change: PodChange) -> None:
        before, after = change
        if before is not None and (after is None or after.service != before.service):
            # Its charge remains; with created_at_us 0 the former service is not charged again.
            self._enqueue_if_due(uid, replace(ownership.mark_ended(before), created_at_us=0))
        if after is not None and (after != before or after.service in self._recounted):
            self._enqueue_if_due(uid, after)

    def _enqueue_if_due(self, uid: str, found: OwnedPod) -> None:
        """Queue a Pod, unless the store neither tracks its service's live Pods nor remembers its charge."""
        plan = self.compiled.plans.get(found.service) if self.compiled is not None else None
        if plan is None:
            return
        is_due = plan.limits_live_pods or found.is_young(plan, self._clock.now_us())
        if is_due or self.pending.holds(found.service, uid):
            self.enqueue(uid, found)


def _list_recounted(before: CompiledPolicy | None, after: CompiledPolicy | None) -> set[str]:
    """Return the services whose live Pods count elsewhere, or by other resources, under the later policy."""
    former = before.plans if before is not None else {}
    plans = after.plans.items() if after is not None else ()
    return {name for name, plan in plans if name in former and plan.live_counters != former[name].live_counters}
