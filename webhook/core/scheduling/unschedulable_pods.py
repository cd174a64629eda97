"""Unschedulable Pods: the last Pods that the rules kept off nodes, to notice when one of the nodes passes again."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.assumed.pod_load import PodLoad
from webhook.core.scheduling.filters import NodeFilters
from webhook.core.scheduling.node_table import NodeRow

_SHAPES_MAX = 64

PodKind = tuple[str, PodLoad]
"""Service and expected load. Pods of one service that ask for the same are of one kind."""


class _Refused(Struct, frozen=True):
    filters: NodeFilters
    nodes: frozenset[str]


class UnschedulablePods:
    """The newest Pod of each kind."""

    def __init__(self) -> None:
        self._kinds: LruCache[PodKind, _Refused] = LruCache(_SHAPES_MAX)

    def __len__(self) -> int:
        return len(self._kinds)

    def refused(self, kind: PodKind, filters: NodeFilters, nodes: frozenset[str]) -> None:
        self._kinds.keep(kind, _Refused(filters, nodes))

    def kinds(self) -> list[PodKind]:
        return [kind for kind, _ in self._kinds.items()]

    def take_if_fitting(self, kind: PodKind, rows: Mapping[str, NodeRow]) -> bool:
        """Return whether a node that refused this Pod would pass it now; the kind is forgotten then."""
        one = self._kinds.get(kind)
        if one is None or not _fits(one, rows):
            return False
        self._kinds.forget(kind)
        return True


def _fits(one: _Refused, rows: Mapping[str, NodeRow]) -> bool:
    refusal = one.filters.refusal
    return any((row := rows.get(name)) is not None and refusal(row) is None for name in one.nodes)
