"""Node index: the cluster's Nodes, and the Pods on them, as the watches show them."""

from collections.abc import Callable, Container, Iterable, KeysView, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.effective_resources import apply_status
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.scheduling import Near
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.topology import Nearness
from webhook.extender.near_index import HostedPod, NearIndex
from webhook.extender.nominated_nodes import SCHEDULED, NominatedNodes

_ENDED = frozenset({"Succeeded", "Failed"})
_DISRUPTED, _PREEMPTED = "DisruptionTarget", "PreemptionByScheduler"
_MILLI = pod_requests.NANO // 1000


class IndexReports(NamedTuple):
    """Callbacks of the index."""

    on_node: Callable[[str], None]
    """With the name of a Node that was added, changed or removed."""
    on_nominated: Callable[[str, Pod, str, float], None]
    """With the uid of a Pod that the scheduler will bind to a node, the Pod, the node, and for how long it counts."""
    on_unnominated: Callable[[str], None]
    """With the uid of a Pod that is not bound to the node after all."""
    on_hosted: Callable[[str, Pod, float], None]
    """With the uid of a Pod that is on a node, the Pod, and since when, in seconds since the Unix epoch."""
    on_listed: Callable[[str, Pod, float], None]
    """The same, for a Pod that was known and is listed again."""
    on_list_complete: Callable[[], None]
    """After each whole list of Pods."""
    on_resized: Callable[[str, Pod], None]
    """With the uid of a Pod on a node that requests another amount, and the Pod."""
    on_started: Callable[[str], None]
    """With the uid of a Pod on a node that is no longer Pending."""
    on_evicted: Callable[[str, str], None]
    """With the uid of a Pod that the scheduler evicts for another one, and its node; maybe repeatedly."""
    on_gone: Callable[[str, str], None]
    """With the uid of a Pod, and the node that it is no longer on."""


class NodeIndex:
    """Receives the events of both watches; `is_complete` once each has listed all."""

    def __init__(
        self, reports: IndexReports, now_seconds: Callable[[], float], is_decided: Callable[[Pod], bool]
    ) -> None:
        """Create it. `is_decided` says whether rules decide on a Pod."""
        self._reports = reports
        self._now_seconds = now_seconds
        self._nodes: dict[str, KnownNode] = {}
        self._aliases: dict[str, list[str]] | None = None
        """Nodes by address; None after a change, until the next lookup."""
        self._pods: dict[str, HostedPod] = {}
        self._requested: dict[str, tuple[int, int]] = {}
        self.nominated = NominatedNodes(reports.on_nominated, reports.on_unnominated, is_decided, now_seconds)
        self._pending: set[str] = set()
        """Pods on nodes that are not started yet."""
        self._near = NearIndex(self._nodes)
        self._listed: set[str] = set()
        self._has_nodes = self._has_pods = False

    @property
    def is_complete(self) -> bool:
        return self._has_nodes and self._has_pods

    @property
    def has_pods(self) -> bool:
        """Whether a Pod is known."""
        return bool(self._pods)

    def list_names(self) -> KeysView[str]:
        """Return the names of all Nodes."""
        return self._nodes.keys()

    def find_node(self, name: str) -> SchedulableNode | None:
        known = self._nodes.get(name)
        return None if known is None else known.node

    def find_names(self, name: str) -> Sequence[str]:
        """Return the Nodes that a source of load calls by this name or address.

        A machine that was registered again under another name has two: both have its load.
        """
        if name in self._nodes:
            return (name,)
        if self._aliases is None:
            self._aliases = {}
            for known in self._nodes.values():
                for alias in known.addresses:
                    self._aliases.setdefault(alias, []).append(known.node.name)
        return self._aliases.get(name, ())

    def sum_requests(self, node: str) -> tuple[float, float]:
        """Return millicores and bytes that the Pods on a node request."""
        cpu, memory = self._requested.get(node, (0, 0))
        return cpu / _MILLI, memory / pod_requests.NANO

    def find_nearness(self, namespace: str, service: str, near: Near) -> Nearness:
        """Return how near nodes are to the Pods of a namespace that a service wants to be near to."""
        return self._near.find_nearness(namespace, service, near, self._pods.values())

    def keep_nearness(self, services: Container[str]) -> None:
        """Forget what other services want to be near to."""
        self._near.keep_only(services)

    # Events of the watch on Nodes.

    def on_nodes_listed(self, nodes: Iterable[KnownNode], unread: AbstractSet[str] = frozenset()) -> None:
        listed = {known.node.name: known for known in nodes}
        for name in self._nodes.keys() - listed.keys() - unread:
            self._change(name, None)
        for name, known in listed.items():
            self._change(name, known)
        self._has_nodes = True

    def on_node_changed(self, known: KnownNode) -> None:
        self._change(known.node.name, known)

    def on_node_gone(self, name: str) -> None:
        self._change(name, None)

    def _change(self, name: str, known: KnownNode | None) -> None:
        before = self._nodes.pop(name, None)
        if known is not None:
            self._nodes[name] = known
        if (() if before is None else before.addresses) != (() if known is None else known.addresses):
            self._aliases = None
        labels = [None if version is None else version.node.labels for version in (before, known)]
        if labels[0] != labels[1]:  # most changes are of a Node's status
            self._near.relabel_node(name, *labels)
        self._reports.on_node(name)

    # Events of the watch on Pods: a `PodEventHandler`.

    async def on_list_begun(self) -> None:
        self._listed = set()

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            uid = pod.metadata.uid
            self._listed.add(uid)
            is_known = uid in self._pods
            self._take(pod, is_listed=True)
            if is_known and uid in self._pods:
                self._reports.on_listed(uid, pod, _parse_scheduled_seconds(pod) or self._now_seconds())

    async def on_list_complete(self) -> None:
        for uid in (self._pods.keys() | self.nominated.list_uids()) - self._listed:
            self._drop(uid)
        self._listed = set()
        self._has_pods = True
        self._reports.on_list_complete()

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        if gone:
            self._note_eviction(pod)
            self._drop(pod.metadata.uid)
        else:
            self._take(pod, is_listed=False)

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        if gone:
            self._drop(uid)
        else:
            self._listed.add(uid)

    async def on_passed(self, pod: Pod) -> None:
        """Ignore an earlier state: the list has a newer one."""

    def _take(self, pod: Pod, *, is_listed: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.status.phase in _ENDED:
            self._note_eviction(pod)
            self._drop(uid)
            return
        if not node:
            self.nominated.show(uid, pod)
            return
        self.nominated.bind(uid)
        known = self._pods.get(uid)
        if known is not None:
            self._update(pod, known, is_listed=is_listed)
            return
        self._pods[uid] = hosted = _count_requests(HostedPod(node, pod.metadata.namespace, pod.labels, 0, 0), pod)
        if pod.is_pending:
            self._pending.add(uid)
        self._near.add_pod(hosted)
        self._add_requests(hosted, 1)
        self._reports.on_hosted(uid, pod, _parse_scheduled_seconds(pod) or self._now_seconds())
        if pod.metadata.deletion_timestamp is not None:
            self._note_eviction(pod)

    def _update(self, pod: Pod, known: HostedPod, *, is_listed: bool) -> None:
        """Take a newer state of a Pod on a node."""
        uid, is_ending = pod.metadata.uid, pod.metadata.deletion_timestamp is not None
        if uid in self._pending and not pod.is_pending:
            self._pending.discard(uid)
            self._reports.on_started(uid)
        if known.labels != pod.labels:
            self._near.remove_pod(known)
            self._pods[uid] = known = replace(known, labels=pod.labels)
            self._near.add_pod(known)
        # Where Pods have no generation, a list shows a resize.
        is_changed = is_listed or known.is_resizing or pod.metadata.generation != known.generation
        if is_ending:
            self._note_eviction(pod)
        elif is_changed:
            self._resize(pod, known)

    def _resize(self, pod: Pod, known: HostedPod) -> None:
        """Count anew what a Pod requests, if that may have changed."""
        uid, counted = pod.metadata.uid, _count_requests(known, pod)
        self._pods[uid] = counted
        if (counted.requested_cpu, counted.requested_memory) != (known.requested_cpu, known.requested_memory):
            self._add_requests(known, -1)
            self._add_requests(counted, 1)
            self._reports.on_resized(uid, pod)

    def _note_eviction(self, pod: Pod) -> None:
        """Report a known Pod that the scheduler says to evict. The condition alone is not enough while it is there."""
        known = self._pods.get(pod.metadata.uid)
        if known is not None and _is_evicted(pod):
            self._reports.on_evicted(pod.metadata.uid, known.node)

    def _drop(self, uid: str) -> None:
        self._pending.discard(uid)
        self.nominated.drop(uid)
        known = self._pods.pop(uid, None)
        if known is not None:
            self._near.remove_pod(known)
            self._add_requests(known, -1)
            self._reports.on_gone(uid, known.node)

    def _add_requests(self, pod: HostedPod, count: int) -> None:
        """Add a Pod to what its node's Pods request, or subtract it. The sums are exact: they are whole numbers."""
        cpu, memory = self._requested.pop(pod.node, (0, 0))
        sums = cpu + count * pod.requested_cpu, memory + count * pod.requested_memory
        if any(sums):  # nothing is kept of nodes that are gone
            self._requested[pod.node] = sums


def _count_requests(hosted: HostedPod, pod: Pod) -> HostedPod:
    """Return a Pod with what its node keeps for it, as the scheduler counts it during a resize."""
    try:
        kept = apply_status(pod)
    except ValueError:  # amounts of the spec were checked, those of the status were not
        kept = None
    cpu, memory = (pod_requests.compute_total(kept or pod, "requests", name) for name in ("cpu", "memory"))
    return HostedPod(
        hosted.node, hosted.namespace, hosted.labels, cpu, memory, pod.metadata.generation, is_resizing=kept is not None
    )


def _is_evicted(pod: Pod) -> bool:
    return any(
        condition.type == _DISRUPTED and condition.status == "True" and condition.reason == _PREEMPTED
        for condition in pod.status.conditions or ()
    )


def _parse_scheduled_seconds(pod: Pod) -> float | None:
    """Return when a Pod was assigned to its node, None if its status does not say that, or not as a time."""
    for condition in pod.status.conditions or ():
        if condition.type == SCHEDULED and condition.status == "True" and condition.last_transition_time:
            try:
                return parse_microseconds(condition.last_transition_time) / 1_000_000
            except ValueError:
                return None
    return None
