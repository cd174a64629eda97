"""Load table: rows of nodes, prepared from the sources' reports, the assumed load of new Pods, and the Node index."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.nodes import Nodes
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.assumed_load import (
    NO_LOAD,
    AssumedLoad,
    PodLoad,
    bound_load,
    estimate_load,
)
from webhook.core.scheduling.candidate_nodes import CandidateNodes
from webhook.core.scheduling.measured_load import (
    REQUESTS,
    Decay,
    NodeLoad,
    choose_freshest,
    choose_last_known,
    keep_last_known,
    merge_hotter,
)
from webhook.core.scheduling.node_table import NodeRow, NodeRows, is_large_enough
from webhook.core.scheduling.numa import compute_zone_share
from webhook.core.scheduling.victim_load import VictimLoad
from webhook.extender.node_index import IndexReports, NodeIndex
from webhook.extender.numa_index import NumaIndex

UNKNOWN, SILENT = "unknown", "silent"
_US = 1_000_000


class LoadTable:
    """`rows` are what calls read. `settle` computes them again, an event only those of its nodes."""

    def __init__(
        self,
        estimates: Callable[[Pod], Estimate],
        now_seconds: Callable[[], float],
        on_bound: Callable[[str, str, float], None],
        is_decided: Callable[[Pod], bool] = lambda _: True,
    ) -> None:
        """Create it. `estimates` returns the rules by which the load of a Pod is expected.

        `on_bound` is called with the uid of a Pod that the watch shows on a node, the node, and since when.
        `is_decided` says whether rules decide on a Pod.
        """
        self._estimates = estimates
        self._on_bound = on_bound
        self._now_seconds = now_seconds
        self._stale_after_seconds = self._forget_after_seconds = 0.0
        self._measured_at_seconds: dict[str, float] = {}
        """The time of the newest load of any node, by source."""
        self._reports: dict[str, dict[str, NodeLoad]] = {}
        """The newest load of each node by source, in the order of the ladder."""
        self._assumed = AssumedLoad(Decay(1.0, 1.0), 0.0)
        self._victims = VictimLoad(Decay(1.0, 1.0), 0.0)
        self._candidates = CandidateNodes()
        reports = IndexReports(
            on_node=self._on_node,
            on_nominated=self._on_nominated,
            on_unnominated=self._withdraw,
            on_hosted=self._on_hosted,
            on_listed=self._on_listed,
            on_list_complete=self._on_list_complete,
            on_resized=self._on_resized,
            on_started=self._on_started,
            on_evicted=self._victims.note_eviction,
            on_gone=self._on_gone,
        )
        self.index = NodeIndex(reports, now_seconds, is_decided)
        self.numa = NumaIndex(now_seconds, self._renew)
        self.node_rows = NodeRows()

    def configure(self, nodes: Nodes | None, sources: Sequence[str]) -> None:
        """Apply the stanza `nodes` and its sources. The load of sources that stay is kept. `settle` must follow."""
        self._reports = {name: self._reports.get(name, {}) for name in sources}
        if nodes is not None:
            self._stale_after_seconds = nodes.stale_after.us / _US
            self._forget_after_seconds = max(nodes.forget_after.us, nodes.stale_after.us) / _US
            every_seconds, window_seconds = nodes.decay.every.us / _US, nodes.window.us / _US
            for loads in (self._assumed, self._victims):
                loads.configure(Decay(nodes.decay.factor, every_seconds), window_seconds)

    def take_measurements(self, source: str, loads: Mapping[str, NodeLoad]) -> int:
        """Enter what a source measured; return how many of its names belong to no Node. `settle` must follow."""
        now_seconds, unknown = self._now_seconds(), 0
        known: dict[str, NodeLoad] = {}
        for alias, load in loads.items():
            names = self.index.find_names(alias)
            unknown += not names
            for name in names:
                before = known.get(name)
                found = load if before is None else merge_hotter(before, load)
                # A time in the future, by a clock that is wrong, would keep old data fresh.
                is_ahead = found.measured_at_seconds > now_seconds
                known[name] = replace(found, measured_at_seconds=now_seconds) if is_ahead else found
        if source in self._reports:
            merged = self._reports[source] = keep_last_known(self._reports[source], known)
            self._measured_at_seconds[source] = max(
                (load.measured_at_seconds for load in merged.values()), default=-inf
            )
        return unknown

    def is_stale(self, source: str) -> bool:
        """Return whether no node has fresh data of a source."""
        age_seconds = self._now_seconds() - self._measured_at_seconds.get(source, -inf)
        return age_seconds > self._stale_after_seconds

    @property
    def rows(self) -> Mapping[str, NodeRow]:
        return self.node_rows.by_name

    def list_nodes(self) -> set[str]:
        """Return the names of all nodes to `settle`: those that have a row, and those with assumed load."""
        return {*self.index.list_names(), *self._assumed.list_nodes()}

    def settle(self, nodes: Iterable[str]) -> None:
        """Compute the rows of these nodes as of now."""
        for node in nodes:
            self._renew(node)

    def count_nodes_by_source(self) -> dict[str, int]:
        """Return how many nodes have their load from each source, and how many are unknown or silent."""
        counts = dict.fromkeys((*self._reports, UNKNOWN, SILENT), 0)
        for row in self.rows.values():
            counts[SILENT if row.is_silent else UNKNOWN if row.load is None else row.load.source] += 1
        return counts

    def count_assumed_pods(self) -> Mapping[str, int]:
        """Return how many Pods of each node have an assumed load, in part or whole; nodes without are left out."""
        return self._assumed.count_pods()

    def compute_candidate_rows(self, rows: Mapping[str, NodeRow] | None = None) -> Mapping[str, NodeRow]:
        """Return the rows of nodes on which Pods may be that were assigned to others, as if these Pods were there."""
        known = self.rows if rows is None else rows
        return self._candidates.compute_rows(known, self._now_seconds()) if self._candidates else {}

    def compute_freed_rows(self, victims: Mapping[str, Iterable[str]], growth: float = 1.0) -> dict[str, NodeRow]:
        """Return rows without the Pods that were evicted, that are being evicted, and these, by node.

        The load that is left is multiplied by `growth`.
        """
        known = {node: row for node in victims if (row := self.rows.get(node)) is not None}
        return {node: self._free_row(row, victims[node], growth) for node, row in known.items()}

    def _free_row(self, row: NodeRow, victims: Iterable[str], growth: float) -> NodeRow:
        node, load, now_seconds = row.node.name, row.load, self._now_seconds()
        assumed = {
            uid: self._assumed.find_load(uid, node, now_seconds)
            for uid in {*victims, *self._victims.list_leaving(node)}
        }
        zones = self.numa.find_zones_without(node, assumed)
        if load is None or load.source == REQUESTS:
            return NodeRow.from_node(row.node, load, row.assumed, zones, is_silent=row.is_silent)
        cpu, memory = self._victims.compute_load(node, load, assumed)
        freed = replace(
            load,
            cpu_millis=None if load.cpu_millis is None else growth * max(0.0, load.cpu_millis - cpu),
            memory_bytes=None if load.memory_bytes is None else growth * max(0.0, load.memory_bytes - memory),
        )
        rest = PodLoad(
            max(0.0, row.assumed.cpu_millis - sum(pod.cpu_millis for pod in assumed.values())),
            max(0.0, row.assumed.memory_bytes - sum(pod.memory_bytes for pod in assumed.values())),
        )
        return NodeRow.from_node(row.node, freed, rest, zones, is_silent=row.is_silent)

    def assign(self, pod: Pod, load: PodLoad, settle_seconds: float, node: str, others: Sequence[str] = ()) -> None:
        """Assume that a Pod and its load go to a node, until the watch shows where it is.

        `others` are its next best nodes.
        """
        uid, now_seconds, zoned = pod.metadata.uid, self._now_seconds(), compute_zone_share(pod)
        # It is tried again, and the scheduler publishes a node only once.
        kept_seconds = self.index.nominated.find_kept_seconds(uid, node)
        bounded = self._bound_load(load, node)
        before = self._assumed.assign(uid, node, bounded, now_seconds, settle_seconds, kept_seconds)
        if zoned is not None:
            self.numa.assign(uid, zoned, node, kept_seconds)
        if others:
            self._candidates.add(uid, others, load, zoned, now_seconds)
        self._renew_both(before, node)

    def withdraw(self, pod: Pod) -> None:
        """Drop the assumed node of a Pod: the scheduler places it again."""
        self.index.nominated.renew(pod.metadata.uid)
        self._withdraw(pod.metadata.uid)

    def _withdraw(self, uid: str) -> None:
        self._candidates.remove(uid)
        self.numa.withdraw(uid)
        node = self._assumed.withdraw(uid)
        if node is not None:
            self._renew(node)

    def _on_node(self, name: str) -> None:
        node = self.index.find_node(name)
        if node is not None and name not in self.rows:  # the watches are not in step: Pods may be shown first
            for uid in self._assumed.list_pods(name):
                pod = self.index.nominated.find_pod(uid)
                if pod is not None and not is_large_enough(node, pod):
                    self._withdraw(uid)
            self._assumed.bound(name, node.whole_load)
        self._renew(name)

    def _on_nominated(self, uid: str, pod: Pod, node: str, kept_seconds: float) -> None:
        """Count a Pod on the node that the scheduler has chosen until it is bound: it may wait for volumes."""
        known, estimate = self.index.find_node(node), self._estimates(pod)
        if known is not None and not is_large_enough(known, pod):
            self._withdraw(uid)  # no scheduler chooses such a node: somebody else has written it
            return
        load, settle_seconds = self._bound_load(estimate_load(pod, estimate), node), estimate.settle.us / _US
        self._candidates.remove(uid)
        before = self._assumed.assign(uid, node, load, self._now_seconds(), settle_seconds, kept_seconds)
        self.numa.nominate(uid, pod, node, kept_seconds)
        self._renew_both(before, node)

    def _on_hosted(self, uid: str, pod: Pod, since_seconds: float) -> None:
        estimate, node = self._estimates(pod), pod.spec.node_name or ""
        settle_seconds = estimate.settle.us / _US
        self._candidates.remove(uid)
        load = self._bound_load(estimate_load(pod, estimate), node)
        before = self._assumed.confirm(uid, node, load, since_seconds, settle_seconds)
        self._victims.add(uid, node, load)
        self.numa.confirm(uid, pod, node, since_seconds)
        self._renew_both(before, node)
        self._on_bound(uid, node, since_seconds)

    def _on_resized(self, uid: str, pod: Pod) -> None:
        node = pod.spec.node_name or ""
        self._victims.add(uid, node, self._bound_load(estimate_load(pod, self._estimates(pod)), node))
        self._renew(node)

    def _on_listed(self, uid: str, pod: Pod, since_seconds: float) -> None:
        self.numa.count(uid, pod, pod.spec.node_name or "", since_seconds)

    def _on_list_complete(self) -> None:
        self.numa.compare_reports()

    def _on_started(self, uid: str) -> None:
        self.numa.start(uid)

    def _on_gone(self, uid: str, node: str) -> None:
        row, now_seconds = self.rows.get(node), self._now_seconds()
        measured = None if row is None or row.load is None or row.load.source == REQUESTS else row.load
        self._victims.remove(uid, node, measured, self._assumed.find_load(uid, node, now_seconds), now_seconds)
        self._assumed.remove(uid)
        self.numa.drop(uid, node)
        self._renew(node)

    def _bound_load(self, load: PodLoad, name: str) -> PodLoad:
        node = self.index.find_node(name)
        return load if node is None else bound_load(load, node.whole_load)

    def _renew_both(self, before: str | None, node: str) -> None:
        if before is not None:
            self._renew(before)
        self._renew(node)

    def _renew(self, name: str) -> None:
        now_seconds = self._now_seconds()
        assumed, node = self._assumed.sum_load(name, now_seconds), self.index.find_node(name)
        if node is None:
            self.node_rows.drop(name)
            for loads in self._reports.values():
                loads.pop(name, None)
            return
        zones = self.numa.find_zones(name)
        load = choose_freshest(self._reports.values(), name, now_seconds, self._stale_after_seconds)
        is_silent = load is None and self._is_any_measured()
        if is_silent:
            load = choose_last_known(self._reports.values(), name, now_seconds - self._forget_after_seconds)
        if load is None:
            assumed = NO_LOAD
            if REQUESTS in self._reports:
                load = NodeLoad(REQUESTS, now_seconds, *self.index.sum_requests(name))
        row = self.rows.get(name)
        is_same = row is not None and row.node is node and row.load is load and row.numa is zones
        if row is None or not is_same or row.assumed != assumed or row.is_silent != is_silent:
            self.node_rows.put(NodeRow.from_node(node, load, assumed, zones, is_silent=is_silent))

    def _is_any_measured(self) -> bool:
        """Return whether a source works now: it has fresh data of some node."""
        return not all(self.is_stale(source) for source in self._reports)
