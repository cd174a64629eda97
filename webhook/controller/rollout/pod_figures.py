"""Figures of Pods by the policy that has judged them: an observer of the watch that counts Pending Pods and starts.

Only Pods of policies that a rollout compares are remembered, with a few numbers each. They are believed only from Pods
that a review has labelled: a tenant can write annotations.
"""

import heapq
from collections.abc import Callable, Mapping

from msgspec import Struct

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod
from webhook.core.pods.start_outcome import (
    StartResult,
    find_cause,
    is_disrupted,
    is_gated,
    judge_start,
    read_created_us,
)
from webhook.core.rollout.symptoms import Share

PODS_MAX = 100_000
"""Pods that are remembered at one time: it bounds memory. Later ones are not counted."""
_START_US = 300_000_000
"""A Pod that is not Ready after this time has failed to start."""
_FOREVER_US = 1 << 62
_FAILURES = frozenset({StartResult.IMAGE_PULL, StartResult.OOM_KILLED, StartResult.CRASH_LOOP})


class PodFigures(Struct, frozen=True):
    """Pods of one policy. `pending`: of those older than the grace period, also of those that have ended."""

    pending: Share = Share(0, 0)
    unscheduled: int = 0
    start_errors: Share = Share(0, 0)


class _Tally(Struct):
    total: int = 0
    pending: int = 0
    unscheduled: int = 0
    started: int = 0
    failed: int = 0


class _Pod(Struct, gc=False):
    """A Pod as last seen. `since_us` is 0 while it has a scheduling gate; `due_us`: when its age next matters."""

    policy_hash: str
    created_us: int
    since_us: int = 0
    due_us: int = 0
    is_grown: bool = False
    """It is older than the grace period."""
    is_late: bool = False
    """Its start took too long."""
    is_pending: bool = False
    is_unscheduled: bool = False
    has_started: bool = False
    has_failed: bool = False


class PodFiguresObserver:
    """A `PodObserver`. Until `follow` is called first, it remembers Pods of all policies: the list comes before."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._followed: Mapping[str, int] | None = None
        self._grace_us = 60_000_000
        self._pods: dict[str, _Pod] = {}
        self._due: list[tuple[int, str]] = []
        self._tallies: dict[str, _Tally] = {}
        self._is_listed = False

    def __len__(self) -> int:
        return len(self._pods)

    def follow(self, followed: Mapping[str, int], grace_us: int) -> None:
        """Count Pods of these policies from now on, each since a time of creation, and forget all others."""
        if (followed, grace_us) == (self._followed, self._grace_us):
            return
        self._followed, self._grace_us = followed, grace_us
        self._pods = {uid: pod for uid, pod in self._pods.items() if self._follows(pod.policy_hash, pod.created_us)}
        self._due, self._tallies = [], {}
        for uid, pod in self._pods.items():
            pod.is_grown = pod.is_late = False
            self._count(pod, 1)
            self._wait(uid, pod)

    def read(self, policy_hash: str) -> PodFigures | None:
        """Return the figures of a policy now; None before the first list is complete."""
        if not self._is_listed:
            return None
        self._let_grow()
        tally = self._tallies.get(policy_hash) or _Tally()
        return PodFigures(
            Share(tally.pending, tally.total), tally.unscheduled, Share(tally.failed, tally.failed + tally.started)
        )

    # --- events of the watch ---

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        """Do nothing: Pods that a list no longer has are deleted one by one."""

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_list_complete(self) -> None:
        self._is_listed = True

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        if self._followed is not None and not self._followed:
            return
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is None:
            known = self._begin(pod, found)
            if known is None:
                return
        else:
            self._count(known, -1)
        if pod.metadata.deletion_timestamp is not None or is_disrupted(pod):
            del self._pods[uid]
            return
        self._update(known, pod)
        self._count(known, 1)
        if known.since_us and not known.due_us:
            self._wait(uid, known)

    def on_deleted(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._count(known, -1)

    def _begin(self, pod: Pod, found: OwnedPod | None) -> _Pod | None:
        """Return a new record of a Pod; None if it does not count."""
        policy_hash = pod.annotations.get(HASH_ANNOTATION, "")
        if not policy_hash or found is None or not (found.is_labelled and found.is_sure) or len(self._pods) >= PODS_MAX:
            return None
        created_us = read_created_us(pod) or self._now_us()
        if not self._follows(policy_hash, created_us):
            return None
        known = self._pods[pod.metadata.uid] = _Pod(policy_hash, created_us, 0 if is_gated(pod) else created_us)
        return known

    def _follows(self, policy_hash: str, created_us: int) -> bool:
        if self._followed is None:
            return True
        since_us = self._followed.get(policy_hash)
        return since_us is not None and created_us >= since_us

    def _update(self, known: _Pod, pod: Pod) -> None:
        if not known.since_us and not is_gated(pod):
            known.since_us = self._now_us()
        known.is_pending = bool(known.since_us) and pod.status.phase == "Pending"
        known.is_unscheduled = known.is_pending and not pod.spec.node_name
        if known.has_started or not known.since_us:
            return
        outcome = judge_start(pod, known.since_us, _FOREVER_US, self._now_us())
        if outcome is not None:
            known.has_started = outcome.result is StartResult.OK
            known.has_failed = outcome.result is not StartResult.OK
        else:
            known.has_failed = find_cause(pod) in _FAILURES

    def _count(self, pod: _Pod, sign: int) -> None:
        tally = self._tallies.setdefault(pod.policy_hash, _Tally())
        if pod.is_grown:
            tally.total += sign
            tally.pending += sign * pod.is_pending
            tally.unscheduled += sign * pod.is_unscheduled
        if pod.has_started:
            tally.started += sign
        elif pod.has_failed or (pod.is_late and not pod.is_unscheduled):
            tally.failed += sign

    # --- age ---

    def _wait(self, uid: str, pod: _Pod) -> None:
        if pod.since_us:
            pod.due_us = pod.since_us + (_START_US if pod.is_grown else self._grace_us)
            heapq.heappush(self._due, (pod.due_us, uid))

    def _let_grow(self) -> None:
        """Count Pods that have become older than the grace period, or too old to be starting."""
        now_us = self._now_us()
        while self._due and self._due[0][0] <= now_us:
            due_us, uid = heapq.heappop(self._due)
            pod = self._pods.get(uid)
            if pod is None or pod.due_us != due_us:
                continue
            self._count(pod, -1)
            pod.is_late = pod.is_grown
            pod.is_grown = True
            self._count(pod, 1)
            if not pod.is_late:
                self._wait(uid, pod)
