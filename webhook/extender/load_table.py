"""Load table: rows of nodes, prepared from the sources' reports, the assumed load of new Pods, and the Node index."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_spec.nodes import Nodes
from webhook.core.policy_spec.scheduling import Estimate
from webhook.core.scheduling.assumed_load import AssumedLoad
from webhook.core.scheduling.filters import REQUESTS
from webhook.core.scheduling.node_load import Decay, NodeLoad, freshest, frozen, hotter
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.pod_load import NO_LOAD, expected_load
from webhook.extender.node_index import NodeIndex
from webhook.extender.numa_index import NumaIndex

UNKNOWN = "unknown"
_US = 1_000_000


class LoadTable:
    """`rows` are what calls read. They are computed anew by `settle`, and one row by each assignment."""

    def __init__(
        self,
        estimates: Callable[[Pod], Estimate],
        now_seconds: Callable[[], float],
        on_bound: Callable[[str, str, float], None],
    ) -> None:
        """Create it. `estimates` returns the rules by which the load of a Pod is expected.

        `on_bound` is called with the uid of a Pod that the watch shows on a node, the node, and since when.
        """
        self._estimates = estimates
        self._on_bound = on_bound
        self._now_seconds = now_seconds
        self._nodes: Nodes | None = None
        self._reports: dict[str, dict[str, NodeLoad]] = {}
        """The newest load of each node by source, in the order of the ladder."""
        self._assumed = AssumedLoad(Decay(1.0, 1.0), 0.0)
        self.index = NodeIndex(self._hosted, self._gone, now_seconds)
        self.numa = NumaIndex(now_seconds)
        self.rows: dict[str, NodeRow] = {}

    def configure(self, nodes: Nodes | None, sources: Sequence[str]) -> None:
        """Take over the stanza `nodes` and its sources. The load of sources that stay is kept."""
        self._nodes = nodes
        self._reports = {name: self._reports.get(name, {}) for name in sources}
        if nodes is not None:
            every_seconds, window_seconds = nodes.decay.every.us / _US, nodes.window.us / _US
            self._assumed.configure(Decay(nodes.decay.factor, every_seconds), window_seconds)
        self.settle()

    def measured(self, source: str, loads: Mapping[str, NodeLoad]) -> int:
        """Take over what a source measured; return how many of its names belong to no Node."""
        now_seconds, unknown = self._now_seconds(), 0
        known: dict[str, NodeLoad] = {}
        for alias, load in loads.items():
            name = self.index.name_of(alias)
            if name is None:
                unknown += 1
                continue
            before = known.get(name)
            found = load if before is None else hotter(before, load)
            # A time in the future, by a clock that is wrong, would keep old data fresh.
            is_ahead = found.measured_at_seconds > now_seconds
            known[name] = replace(found, measured_at_seconds=now_seconds) if is_ahead else found
        if source in self._reports:
            self._reports[source] = frozen(self._reports[source], known)
        return unknown

    def settle(self) -> None:
        """Compute all rows as of now."""
        now_seconds, nodes = self._now_seconds(), self._nodes
        ladder = list(self._reports.values())
        stale_after_seconds = 0.0 if nodes is None else nodes.stale_after.us / _US
        assumed = self._assumed.settle(now_seconds)
        requested = self._requested(now_seconds) if REQUESTS in self._reports else {}
        rows: dict[str, NodeRow] = {}
        for node in self.index.nodes():
            load = freshest(ladder, node.name, now_seconds, stale_after_seconds)
            zones = self.numa.of(node.name)
            if load is not None:
                rows[node.name] = NodeRow(node, load, assumed.get(node.name, NO_LOAD), zones)
            else:
                rows[node.name] = NodeRow(node, requested.get(node.name), NO_LOAD, zones)
        self.rows = rows

    def nodes_by_source(self) -> dict[str, int]:
        """Return how many nodes have their load from each source; `unknown` is without one."""
        counts = dict.fromkeys((*self._reports, UNKNOWN), 0)
        for row in self.rows.values():
            counts[UNKNOWN if row.load is None else row.load.source] += 1
        return counts

    def assumed_pods(self) -> Mapping[str, int]:
        """Return how many Pods each node has whose load is assumed, in part or whole; others are left out."""
        return self._assumed.counts()

    def assign(self, pod: Pod, node: str, estimate: Estimate) -> None:
        """Assume that a Pod goes to a node, until the watch shows where it is."""
        uid, now_seconds = pod.metadata.uid, self._now_seconds()
        self._assumed.assign(uid, node, expected_load(pod, estimate), now_seconds, estimate.settle.us / _US)
        self.numa.assign(uid, pod, node)
        self._renew(node)

    def _requested(self, now_seconds: float) -> dict[str, NodeLoad]:
        found = self.index.requested()
        return {
            node.name: NodeLoad(REQUESTS, now_seconds, *found.get(node.name, (0.0, 0.0))) for node in self.index.nodes()
        }

    def _hosted(self, uid: str, pod: Pod, since_seconds: float) -> None:
        estimate, node = self._estimates(pod), pod.spec.node_name or ""
        load = expected_load(pod, estimate)
        self._assumed.confirm(uid, node, load, since_seconds, estimate.settle.us / _US)
        self.numa.hosted(uid, pod, node, since_seconds)
        self._renew(node)
        self._on_bound(uid, node, since_seconds)

    def _gone(self, uid: str) -> None:
        node = self._assumed.remove(uid)
        self.numa.gone(uid)
        if node is not None:
            self._renew(node)

    def _renew(self, node: str) -> None:
        row = self.rows.get(node)
        if row is not None:
            is_measured = row.load is not None and row.load.source != REQUESTS
            assumed = self._assumed.of(node) if is_measured else NO_LOAD
            self.rows[node] = replace(row, assumed=assumed, numa=self.numa.of(node))
