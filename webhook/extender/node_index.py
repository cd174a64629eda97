"""Node index: the cluster's Nodes, and the Pods on them, as the watches show them."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.timestamps import microseconds
from webhook.core.policy_spec.scheduling import Near
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode

_ENDED = frozenset({"Succeeded", "Failed"})
_SCHEDULED = "PodScheduled"
_MILLI = pod_requests.NANO // 1000


class HostedPod(Struct, frozen=True, gc=False):
    """A Pod on a node, as far as decisions about other Pods need it."""

    node: str
    namespace: str
    labels: dict[str, str]
    requested_cpu_millis: float
    requested_memory_bytes: float


OnHosted = Callable[[str, Pod, float], None]
"""Called with the uid of a Pod that is on a node, the Pod, and since when, in seconds since the Unix epoch."""


class NodeIndex:
    """Receives the events of both watches; `is_complete` once each has listed all."""

    def __init__(self, on_hosted: OnHosted, on_gone: Callable[[str], None], now_seconds: Callable[[], float]) -> None:
        self._on_hosted = on_hosted
        self._on_gone = on_gone
        self._now_seconds = now_seconds
        self._nodes: dict[str, KnownNode] = {}
        self._aliases: dict[str, str] = {}
        self._pods: dict[str, HostedPod] = {}
        self._listed: set[str] = set()
        self._has_nodes = self._has_pods = False

    @property
    def is_complete(self) -> bool:
        return self._has_nodes and self._has_pods

    def nodes(self) -> Iterable[SchedulableNode]:
        return (known.node for known in self._nodes.values())

    def name_of(self, name: str) -> str | None:
        """Return the Node that a source of load calls by this name or address, None if there is none."""
        return name if name in self._nodes else self._aliases.get(name)

    def requested(self) -> dict[str, tuple[float, float]]:
        """Return millicores and bytes that the Pods on each node request."""
        found: dict[str, tuple[float, float]] = {}
        for pod in self._pods.values():
            cpu, memory = found.get(pod.node, (0.0, 0.0))
            found[pod.node] = cpu + pod.requested_cpu_millis, memory + pod.requested_memory_bytes
        return found

    def hosts(self, namespace: str, near: Near) -> list[SchedulableNode]:
        """Return the nodes with Pods of a namespace that are wanted near."""
        names = {pod.node for pod in self._pods.values() if pod.namespace == namespace and selects(near.to, pod.labels)}
        return [self._nodes[name].node for name in names if name in self._nodes]

    # Events of the watch on Nodes.

    def nodes_listed(self, nodes: Iterable[KnownNode]) -> None:
        self._nodes = {known.node.name: known for known in nodes}
        self._has_nodes = True
        self._find_aliases()

    def node_changed(self, known: KnownNode, *, gone: bool) -> None:
        before = self._nodes.pop(known.node.name, None)
        if not gone:
            self._nodes[known.node.name] = known
        if gone or before is None or before.addresses != known.addresses:  # most changes are of a Node's status
            self._find_aliases()

    def _find_aliases(self) -> None:
        self._aliases = {alias: known.node.name for known in self._nodes.values() for alias in known.addresses}

    # Events of the watch on Pods: a `PodEventHandler`.

    async def begin(self) -> None:
        self._listed = set()

    async def listed(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._listed.add(pod.metadata.uid)
            self._take(pod)

    async def complete(self) -> None:
        for uid in self._pods.keys() - self._listed:
            self._drop(uid)
        self._listed = set()
        self._has_pods = True

    async def changed(self, pod: Pod, *, gone: bool) -> None:
        if gone:
            self._drop(pod.metadata.uid)
        else:
            self._take(pod)

    async def passed(self, pod: Pod) -> None:
        """Ignore an earlier state: the list has a newer one."""

    def _take(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node or pod.status.phase in _ENDED:
            self._drop(uid)
            return
        self._listed.add(uid)
        known = self._pods.get(uid)
        if known is not None:
            if known.labels != pod.labels:
                self._pods[uid] = replace(known, labels=pod.labels)
            return
        self._pods[uid] = HostedPod(
            node,
            pod.metadata.namespace,
            pod.labels,
            pod_requests.total(pod, "requests", "cpu") / _MILLI,
            pod_requests.total(pod, "requests", "memory") / pod_requests.NANO,
        )
        self._on_hosted(uid, pod, _scheduled_seconds(pod) or self._now_seconds())

    def _drop(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._on_gone(uid)


def _scheduled_seconds(pod: Pod) -> float | None:
    """Return when a Pod was assigned to its node, None if its status does not say that."""
    for condition in pod.status.conditions or ():
        if condition.type == _SCHEDULED and condition.status == "True" and condition.last_transition_time:
            return microseconds(condition.last_transition_time) / 1_000_000
    return None
