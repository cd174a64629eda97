"""Candidate nodes: where a Pod that the scheduler is placing may be, until the watch shows it on one of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.assumed_load import CONFIRMED_SECONDS, PodLoad
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.numa import Amounts

CANDIDATES_MAX = 16
"""Best nodes of a Pod. Which one it gets depends on the scheduler's own scores, too, and among equal ones on chance."""
_PODS_MAX = 64
"""The scheduler places one Pod at a time, and the watch shows it soon after."""


class _Placement(NamedTuple):
    nodes: Sequence[str]
    load: PodLoad
    zoned: Amounts | None
    since_seconds: float


class CandidateNodes:
    """The candidates of the Pods that were scored last.

    The next Pod may be scheduled before the watch shows the last one. To pass no threshold, a node is then judged as if
    each Pod that may be on it were there.
    """

    def __init__(self) -> None:
        self._pods: LruCache[str, _Placement] = LruCache(_PODS_MAX)

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, uid: str, nodes: Sequence[str], load: PodLoad, zoned: Amounts | None, now_seconds: float) -> None:
        """Add a Pod. `nodes` are without the one that has the Pod's assumed load; `zoned` is what it takes of zones."""
        self._pods.keep(uid, _Placement(nodes, load, zoned, now_seconds))

    def remove(self, uid: str) -> None:
        self._pods.forget(uid)

    def compute_rows(self, rows: Mapping[str, NodeRow], now_seconds: float) -> dict[str, NodeRow]:
        """Return the rows of all candidates, each with the Pods that may be there."""
        over = [uid for uid, pod in self._pods.items() if now_seconds - pod.since_seconds > CONFIRMED_SECONDS]
        for uid in over:
            self._pods.forget(uid)
        there: dict[str, list[_Placement]] = {}
        for pod in self._pods.values():
            for node in pod.nodes:
                there.setdefault(node, []).append(pod)
        return {node: _add_pods(rows[node], pods) for node, pods in there.items() if node in rows}


def _add_pods(row: NodeRow, pods: Iterable[_Placement]) -> NodeRow:
    (cpu, memory), zones = row.assumed, row.numa
    for _, load, zoned, _ in pods:
        cpu, memory = cpu + load.cpu_millis, memory + load.memory_bytes
        if zones is not None and zoned is not None:
            zones = zones.subtract(zoned)
    return NodeRow.from_node(row.node, row.load, PodLoad(cpu, memory), zones, is_silent=row.is_silent)
