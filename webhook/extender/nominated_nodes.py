"""Nominated nodes: those that a scheduler publishes for Pods before it binds them, in the Pods or in their claims.

Why: docs/design/assumed-load.md.
"""

from collections.abc import Callable, Iterable, KeysView
from collections.abc import Set as AbstractSet

from msgspec import Struct

from webhook.core.kubernetes.controllers import find_pinned_node
from webhook.core.kubernetes.pod import (
    Container,
    OwnerReference,
    Pod,
    PodCondition,
    PodMetadata,
    PodSpec,
    PodStatus,
)
from webhook.core.kubernetes.types import Affinity, NodeAffinity, NodeRequirement, NodeSelector, NodeSelectorTerm
from webhook.core.placement import SERVICE_LABEL
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS, NOMINATED_SECONDS
from webhook.core.scheduling.claims import SelectedClaim, list_claims

SCHEDULED = "PodScheduled"
_KIND_MAX = 64
"""Characters kept of an owner's kind and API version: no longer ones are compared with."""
_SCHEDULER_MAX = 253
"""Characters kept of a scheduler's name: no longer one asks."""
_CLAIM_MAX = 63 + 1 + 253
"""Characters of the longest NAMESPACE/NAME. A Pod may name a claim that cannot exist."""


class _WaitingPod(Struct, frozen=True):
    """A Pod without a node."""

    pod: Pod
    claims: tuple[str, ...]
    condition: PodCondition | None

    @property
    def nominated(self) -> str:
        return self.pod.status.nominated_node_name or ""


class NominatedNodes:
    """A `ports.ClaimEventHandler`. It keeps the Pods that have a nominated node or name claims, and the awaited claims.

    `status.nominatedNodeName` says where a Pod goes from Kubernetes 1.35 on. Before, only its claims do. A claim tells
    of the one waiting Pod that names it; of several nobody knows which one was meant. Tenants may write claims: all
    changes of a Pod's claims share one time, until the scheduler asks about the Pod again.
    """

    def __init__(
        self,
        on_nominated: Callable[[str, Pod, str, float], None],
        on_unnominated: Callable[[str], None],
        is_decided: Callable[[Pod], bool],
        now_seconds: Callable[[], float],
    ) -> None:
        """Create it. `is_decided` says whether rules decide on a Pod: the claims of others are not read.

        `on_nominated` is called with the uid of a Pod, the Pod, its node, and for how many seconds it counts there.
        """
        self._on_nominated = on_nominated
        self._on_unnominated = on_unnominated
        self._is_decided = is_decided
        self._now_seconds = now_seconds
        self._held_since_seconds: dict[str, float] = {}
        """When a claim first held a Pod, by its uid."""
        self._pods: dict[str, _WaitingPod] = {}
        self._uids_by_claim: dict[str, set[str]] = {}
        self.nodes_by_claim: dict[str, str] = {}
        """Of the awaited claims, whether a known Pod names them or not: the watches are not in step."""

    @property
    def needs_claims(self) -> bool:
        """Whether a waiting Pod names claims."""
        return any(pod.claims and self._is_decided(pod.pod) for pod in self._pods.values())

    def list_uids(self) -> KeysView[str]:
        return self._pods.keys()

    def find_node(self, uid: str) -> str:
        """Return the node that a scheduler has published for a Pod, "" without one."""
        waiting = self._pods.get(uid)
        return "" if waiting is None else waiting.nominated or self._find_selected(waiting)

    def find_pod(self, uid: str) -> Pod | None:
        waiting = self._pods.get(uid)
        return None if waiting is None else waiting.pod

    def find_kept_seconds(self, uid: str, node: str) -> float:
        """Return for how long a Pod counts that was scored best on a node: longer if the node is published for it."""
        if self.find_node(uid) != node:
            return CONFIRMED_SECONDS
        return NOMINATED_SECONDS if self._pods[uid].nominated else max(CONFIRMED_SECONDS, self._open_window(uid))

    def renew(self, uid: str) -> None:
        """Let claims hold a Pod for the whole time again: its scheduler has asked about it, which no tenant can."""
        self._held_since_seconds.pop(uid, None)

    # Events of the watch on Pods.

    def show(self, uid: str, pod: Pod) -> None:
        """Take in a Pod without a node."""
        is_gated = bool(pod.spec.scheduling_gates)  # no scheduler has seen it
        former, claims = self._pods.get(uid), () if is_gated else _list_claims(pod)
        if former is None and not claims and not pod.status.nominated_node_name:
            return
        before = "" if former is None else former.nominated
        self._forget(uid)
        waiting = self._pods[uid] = _WaitingPod(_reduce(pod), claims, _find_condition(pod))
        for claim in claims:
            self._uids_by_claim.setdefault(claim, set()).add(uid)
        if waiting.nominated:
            if waiting.nominated != before:
                self._on_nominated(uid, waiting.pod, waiting.nominated, NOMINATED_SECONDS)
        elif before or (former is not None and _has_failed(former, waiting)):
            self._on_unnominated(uid)
        elif former is None:
            self._hold_selected(uid, self._find_selected(waiting))

    def bind(self, uid: str) -> None:
        """Forget a Pod that has its node now."""
        self._forget(uid)
        self.renew(uid)

    def drop(self, uid: str) -> None:
        """Forget a Pod that is gone, or has ended."""
        if uid in self._pods:
            self._on_unnominated(uid)
        self._forget(uid)
        self.renew(uid)

    # Events of the watch on claims.

    def on_claims_listed(self, claims: Iterable[SelectedClaim], unread: AbstractSet[str] = frozenset()) -> None:
        former, listed = dict(self.nodes_by_claim), {claim.key: claim.node for claim in claims}
        for key in former.keys() - unread:
            del self.nodes_by_claim[key]
        self.nodes_by_claim.update(listed)
        for key, node in self.nodes_by_claim.items():
            if former.get(key) != node:
                self._hold_claiming(key, node)

    def on_claim_changed(self, claim: SelectedClaim) -> None:
        before = self.nodes_by_claim.pop(claim.key, "")
        if claim.is_awaited:
            self.nodes_by_claim[claim.key] = claim.node
            if claim.node != before:
                self._hold_claiming(claim.key, claim.node)
        elif not claim.is_bound and before:
            self._release_claiming(claim.key)

    def on_claim_gone(self, key: str) -> None:
        if self.nodes_by_claim.pop(key, ""):
            self._release_claiming(key)

    def _hold_claiming(self, claim: str, node: str) -> None:
        for uid in self._uids_by_claim.get(claim, ()):
            if not self._pods[uid].nominated:
                self._hold_selected(uid, node)

    def _release_claiming(self, claim: str) -> None:
        for uid in self._uids_by_claim.get(claim, ()):
            if not self._pods[uid].nominated:
                self._on_unnominated(uid)

    def _find_selected(self, waiting: _WaitingPod) -> str:
        return next(filter(None, (self.nodes_by_claim.get(claim, "") for claim in waiting.claims)), "")

    def _hold_selected(self, uid: str, node: str) -> None:
        waiting = self._pods[uid]
        is_shared = any(len(self._uids_by_claim[claim]) > 1 for claim in waiting.claims)
        if node and not is_shared and self._is_decided(waiting.pod):
            left_seconds = self._open_window(uid)
            if left_seconds > 0:
                self._on_nominated(uid, waiting.pod, node, left_seconds)

    def _open_window(self, uid: str) -> float:
        """Return for how many more seconds claims hold a Pod, counted from the first time that one does."""
        now_seconds = self._now_seconds()
        return self._held_since_seconds.setdefault(uid, now_seconds) + NOMINATED_SECONDS - now_seconds

    def _forget(self, uid: str) -> None:
        waiting = self._pods.pop(uid, None)
        for claim in () if waiting is None else waiting.claims:
            uids = self._uids_by_claim[claim]
            uids.discard(uid)
            if not uids:
                del self._uids_by_claim[claim]


def _reduce(pod: Pod) -> Pod:
    """Return of a Pod what its service, scheduler and load are found by. Its creator may write the rest at any length.

    `managed_fields` would also keep the whole answer that it came in.
    """
    metadata, spec, owners = pod.metadata, pod.spec, pod.metadata.owner_references or ()
    controllers = tuple(owner for owner in owners if owner.controller)
    service = pod.labels.get(SERVICE_LABEL)
    return Pod(
        PodMetadata(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            labels=None if service is None else {SERVICE_LABEL: service},
            owner_references=tuple(map(_reduce_owner, owners[:1] + controllers[:1])),
        ),
        PodSpec(
            affinity=_reduce_affinity(pod),
            scheduler_name=(spec.scheduler_name or "")[:_SCHEDULER_MAX] or None,
            containers=_reduce_containers(spec.containers),
            init_containers=_reduce_containers(spec.init_containers),
            resources=spec.resources,
            overhead=spec.overhead,
        ),
        PodStatus(phase=pod.status.phase, nominated_node_name=pod.status.nominated_node_name),
    )


def _reduce_owner(owner: OwnerReference) -> OwnerReference:
    return OwnerReference(owner.api_version[:_KIND_MAX], owner.kind[:_KIND_MAX], controller=owner.controller)


def _reduce_affinity(pod: Pod) -> Affinity | None:
    """Return what tells the Pod of a DaemonSet."""
    node = find_pinned_node(pod)
    if not node:
        return None
    field = NodeRequirement("metadata.name", "In", (node,))
    return Affinity(NodeAffinity(NodeSelector((NodeSelectorTerm(match_fields=(field,)),))))


def _reduce_containers(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    if containers is None:
        return None
    return tuple(Container(resources=found.resources, restart_policy=found.restart_policy) for found in containers)


def _list_claims(pod: Pod) -> tuple[str, ...]:
    return tuple(claim for claim in list_claims(pod) if len(claim) <= _CLAIM_MAX)


def _find_condition(pod: Pod) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions or () if condition.type == SCHEDULED), None)


def _has_failed(former: _WaitingPod, now: _WaitingPod) -> bool:
    """Return whether a scheduler has given a Pod up. While it tries again, the condition of the last failure stays."""
    condition = now.condition
    return condition is not None and condition.status == "False" and condition != former.condition
