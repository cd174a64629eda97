"""Shadow of a candidate: a sample of new Pods is judged by it and by the policy in force, after their own reviews.

Nothing of it reaches a response or a counter. Reviews come first: between two shadow reviews the event loop has a turn,
and what comes while too many wait is left out. What it costs: docs/design/policy-in-force.md.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from zlib import crc32

import msgspec
from msgspec.structs import replace

from webhook.core.admission.decision import Half
from webhook.core.admission.pod_results import encode_template_key
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.overrides.exceptions import choose_exception
from webhook.core.policy_fields.rollout import read_share
from webhook.core.rollout.counting import SHADOW_REVIEWS, ShadowTotals, make_shadow_name
from webhook.core.rollout.shadow import ShadowReview, compare, list_peeks
from webhook.core.shares import PodSlot
from webhook.errors import StoreUnavailableError
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.ports import CounterStore, NamespaceLabels, PartialObserver, Review

WAITING_MAX = 100
_BUCKETS = 10_000
_POD_BYTES_MAX = 16 * 1024
"""A larger Pod would delay reviews."""
_WAITING_POD_BYTES_MAX = 64 * 1024
"""Of a Pod with what is not judged of it, such as long annotations."""
_NO_LABELS: Mapping[str, str] = {}
_encode = msgspec.json.Encoder().encode


class Shadow(PartialObserver):
    """An observer of reviews, which judges a sample of them again."""

    def __init__(
        self,
        active: ActivePolicy,
        store: CounterStore,
        namespaces: NamespaceLabels,
        count: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Create it. `count` receives the candidate's hash and the name of each count, for all replicas."""
        self.totals = ShadowTotals()
        self._active = active
        self._store = store
        self._namespaces = namespaces
        self._count = count
        self._waiting: deque[tuple[Request, PodSlot | None]] = deque()
        """With the slot that the review has given the Pod."""
        self._has_work = asyncio.Event()

    def begin(self) -> None:
        """Begin anew, with another candidate."""
        self.totals = ShadowTotals()
        self._waiting.clear()

    def on_reviewed(self, review: Review) -> None:
        decision, request = review.decision, review.request
        if decision.half is not Half.MUTATE or request is None or request.operation != "CREATE" or request.dry_run:
            return
        if request.workload is not None or request.pod is None:
            return
        if crc32(request.uid.encode()) % _BUCKETS >= self._find_share() * _BUCKETS:
            return
        detached = None if len(self._waiting) >= WAITING_MAX else _detach(request)
        if detached is None:
            self.totals.left_out += 1
            return
        self._waiting.append((detached, decision.inputs.slot))
        self._has_work.set()

    async def run(self) -> None:
        """Judge what waits, until cancelled."""
        while True:
            await self._has_work.wait()
            while self._waiting:
                await self.judge(*self._waiting.popleft())
                await asyncio.sleep(0)
            self._has_work.clear()

    async def judge(self, request: Request, slot: PodSlot | None = None) -> None:
        """Judge one Pod by both policies, and count how they differ."""
        stable, candidate = self._active.get_current(), self._active.get_shadow()
        if stable is None or candidate is None:
            return  # the shadow has ended
        key = None if request.pod is None else encode_template_key(request.pod)
        if key is None or len(key) > _POD_BYTES_MAX:
            self.totals.left_out += 1
            return
        try:
            service, differences = await self._compare(request, slot, stable, candidate)
        except (BadReviewError, StoreUnavailableError):
            self.totals.left_out += 1
            return
        self.totals.judged += 1
        self._count(candidate.hash, SHADOW_REVIEWS)
        for difference in differences:
            self.totals.differences[service, difference] += 1
            self._count(candidate.hash, make_shadow_name(service, difference))

    async def _compare(
        self, request: Request, slot: PodSlot | None, stable: CompiledPolicy, candidate: CompiledPolicy
    ) -> tuple[str, tuple[str, ...]]:
        labels, number = self._namespaces.find_labels(request.namespace) or _NO_LABELS, 1 if slot is None else slot.slot
        before, after = (
            ShadowReview(request, choose_exception(policy, request), labels, number) for policy in (stable, candidate)
        )
        asked = list_peeks(before, after)
        for judged, peek in zip((before, after), asked, strict=False):
            judged.record(await self._store.acquire(peek))
        return compare(before, after)

    def _find_share(self) -> float:
        loaded = self._active.get_loaded()
        rollout = None if loaded is None else loaded.policy.rollout
        return 0.0 if rollout is None or rollout.shadow is None else read_share(rollout.shadow.sample)


def _detach(request: Request) -> Request | None:
    """Return a request that keeps nothing of its body, which may be large; None for a large Pod."""
    pod = request.pod
    if pod is None or request.excess is not None or len(_encode(pod)) > _WAITING_POD_BYTES_MAX:
        return None
    metadata = replace(pod.metadata, managed_fields=pod.metadata.managed_fields.copy())
    return replace(request, pod=replace(pod, metadata=metadata))
