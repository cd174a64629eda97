"""Unschedulable Pods: the last Pods that the rules kept off nodes, to notice when one of the nodes passes again."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.filters import Filter, refusal
from webhook.core.scheduling.node_table import NodeRow

_SHAPES_MAX = 64


class _Refused(Struct, frozen=True):
    filters: tuple[Filter, ...]
    nodes: frozenset[str]


class UnschedulablePods:
    """The newest Pod of each kind. Pods of one service that ask for the same are of one kind."""

    def __init__(self) -> None:
        self._kinds: LruCache[tuple[str, object], _Refused] = LruCache(_SHAPES_MAX)

    def __len__(self) -> int:
        return len(self._kinds)

    def refused(self, kind: tuple[str, object], filters: tuple[Filter, ...], nodes: frozenset[str]) -> None:
        self._kinds.keep(kind, _Refused(filters, nodes))

    def take_fitting(self, rows: Mapping[str, NodeRow]) -> bool:
        """Return whether a node that refused one of these Pods would pass it now; such kinds are forgotten."""
        kinds, found = list(self._kinds.items()), False
        self._kinds.clear()
        for kind, one in kinds:
            if any((row := rows.get(name)) is not None and refusal(row, one.filters) is None for name in one.nodes):
                found = True
            else:
                self._kinds.keep(kind, one)
        return found
