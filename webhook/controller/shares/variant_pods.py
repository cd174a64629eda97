"""Variant Pods of the cluster: an observer of the watch that keeps the living Pods of services with shares."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from webhook.controller.shares.slot_reconciler import SlotReconciler
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod
from webhook.core.pods.variant_pod import VariantPod, holds_slot, read_variant_pod
from webhook.core.shares import SharesPlan

VariantKey = tuple[str, str]
"""A service, and the name of one of its variants."""


class VariantPods:
    """A `PodObserver`. It does nothing under a policy without shares. `slots` is told who holds which slot."""

    def __init__(self, slots: SlotReconciler | None, now_us: Callable[[], int]) -> None:
        self._slots = slots
        self._now_us = now_us
        self._compiled: CompiledPolicy | None = None
        self._is_used = False
        self._pods: dict[str, VariantPod] = {}
        self._by_variant: defaultdict[VariantKey, dict[str, VariantPod]] = defaultdict(dict)
        self._fallen_back: defaultdict[VariantKey, dict[str, VariantPod]] = defaultdict(dict)
        """By the variant that they were to get."""
        self._ended: set[str] = set()
        """Pods that have freed their slots, and still exist."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def list_of(self, service: str, variant: str) -> Iterable[VariantPod]:
        """Return the living Pods of a variant."""
        return self._by_variant[service, variant].values()

    def list_fallen_back(self, service: str, intended: str) -> Iterable[VariantPod]:
        """Return the living Pods that were to get a variant, and got another one."""
        return self._fallen_back[service, intended].values()

    def list_of_owner(self, service: str, owner: str) -> Iterator[VariantPod]:
        """Yield the living Pods of the owner with this uid."""
        found = (pods for (of, _), pods in self._by_variant.items() if of == service)
        return (pod for pods in found for pod in pods.values() if pod.owner.uid == owner)

    def group_by_owner(self, service: str) -> Iterable[Sequence[VariantPod]]:
        """Return the living Pods of each owner that has some."""
        groups: defaultdict[str, list[VariantPod]] = defaultdict(list)
        for (of, _), pods in self._by_variant.items():
            for pod in pods.values() if of == service else ():
                groups[pod.owner.uid].append(pod)
        return groups.values()

    def count(self) -> tuple[Mapping[VariantKey, int], Mapping[VariantKey, int]]:
        """Return how many Pods each variant has, and how many were to get it, and got another one."""
        keys = [(service, variant.name) for service, plan in self._list_shares() for variant in plan.variants]
        return (
            {key: len(self._by_variant[key]) for key in keys},
            {key: len(self._fallen_back[key]) for key in keys},
        )

    # --- events of the watch ---

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        self._compiled = compiled
        self._is_used = compiled is not None and bool(compiled.shares or compiled.has_canary)
        services = {service for service, _ in self._list_shares()}
        gone = {pod.service for pod in self._pods.values()} - services
        if self._slots is not None:
            self._slots.drop(gone)
        for uid, pod in list(self._pods.items()):
            if pod.service in gone:
                self._remove(uid)
        if not self._is_used:
            self._ended.clear()

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_list_complete(self) -> None:
        if self._is_used and self._slots is not None:
            self._slots.correct_all()

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        if not self._is_used:
            return
        uid = pod.metadata.uid
        shares = None if found is None else self._find_shares(pod, found.service)
        before = self._pods.get(uid)
        after = None
        if found is not None and shares is not None:
            after = read_variant_pod(pod, found.service, shares, self._now_us(), before)
        if after is not None and holds_slot(pod):
            self._put(after)
            if before is None and self._slots is not None:
                self._slots.hold(after)
            return
        self._remove(uid)
        left = before or after
        if left is not None and uid not in self._ended:
            self._ended.add(uid)
            self._free(left)

    def on_deleted(self, uid: str) -> None:
        left = self._remove(uid)
        if left is not None:
            self._free(left)
        self._ended.discard(uid)

    def _put(self, pod: VariantPod) -> None:
        self._remove(pod.uid)
        self._pods[pod.uid] = self._by_variant[pod.service, pod.variant][pod.uid] = pod
        if pod.fell_back:
            self._fallen_back[pod.service, pod.intended][pod.uid] = pod

    def _remove(self, uid: str) -> VariantPod | None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            del self._by_variant[pod.service, pod.variant][uid]
            self._fallen_back[pod.service, pod.intended].pop(uid, None)
        return pod

    def _free(self, pod: VariantPod) -> None:
        if self._slots is not None:
            self._slots.free(pod)

    def _find_shares(self, pod: Pod, service: str) -> SharesPlan | None:
        """Return the shares of the policy that has judged a Pod."""
        compiled = self._compiled
        if compiled is None:
            return None
        if compiled.has_canary:
            compiled = compiled.choose_by_hash(pod.annotations.get(HASH_ANNOTATION, ""))
        return compiled.shares.get(service)

    def _list_shares(self) -> tuple[tuple[str, SharesPlan], ...]:
        return () if self._compiled is None else self._compiled.list_shares()
