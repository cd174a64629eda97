"""Victim load: how much of a node's measured load is that of Pods which the scheduler evicts.

Why: docs/design/victim-load.md.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from webhook.core.lru_cache import LruCache
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad
from webhook.core.scheduling.measured_load import Decay, NodeLoad

_KINDS_MAX = 1024


class _Departure(NamedTuple):
    node: str
    load: PodLoad
    since_seconds: float


class VictimLoad:
    """The expected load of the Pods on each node, and of those that were evicted within the last minutes.

    It is the mirror of `AssumedLoad`: the average of a node still contains a Pod that has left, and its share of the
    average fades. Nobody measures the load of single Pods. A victim counts at most what is expected of it, and at most
    what the measured load exceeds that expected of the others on its node.
    """

    def __init__(self, decay: Decay, window_seconds: float) -> None:
        self._decay = decay
        self._window_seconds = window_seconds
        self._expected: dict[str, dict[str, PodLoad]] = {}
        """By node, then by uid."""
        self._kinds: LruCache[PodLoad, PodLoad] = LruCache(_KINDS_MAX)
        """Loads of which many Pods have the same one: it is kept once."""
        self._leaving: dict[str, set[str]] = {}
        """Pods on nodes that are being evicted, by node. Nodes without them are not in it."""
        self._departed: dict[str, deque[_Departure]] = {}
        """By node, the oldest first."""
        self._departures: deque[_Departure] = deque()
        """All of them, the oldest first."""

    def configure(self, decay: Decay, window_seconds: float) -> None:
        """Use another decay and window from now on."""
        self._decay = decay
        self._window_seconds = window_seconds

    def __len__(self) -> int:
        """Return how many Pods have left that still count."""
        return len(self._departures)

    def add(self, uid: str, node: str, load: PodLoad) -> None:
        """Add a Pod on a node, with its expected load."""
        known = self._kinds.get(load)
        if known is None:
            self._kinds.keep(load, load)
        self._expected.setdefault(node, {})[uid] = known or load

    def note_eviction(self, uid: str, node: str) -> None:
        """Record that the scheduler evicts a Pod on a node."""
        self._leaving.setdefault(node, set()).add(uid)

    def list_leaving(self, node: str) -> AbstractSet[str]:
        """Return the Pods on a node that are being evicted."""
        return self._leaving.get(node, frozenset())

    def remove(self, uid: str, node: str, measured: NodeLoad | None, assumed: PodLoad, now_seconds: float) -> None:
        """Remove a Pod that is no longer on its node. If it was evicted, it counts as a victim that has left.

        `assumed` is the part of its load that is assumed, and is in no measurement yet.
        """
        self._drop_faded(now_seconds)
        leaving = self._leaving.get(node, set())
        if uid in leaving:
            load = NO_LOAD if measured is None else self._compute_share(node, measured, {uid: assumed})
            departure = _Departure(node, load, now_seconds)
            self._departed.setdefault(node, deque()).append(departure)
            self._departures.append(departure)
            leaving.remove(uid)
            if not leaving:
                del self._leaving[node]
        pods = self._expected.get(node, {})
        pods.pop(uid, None)
        if not pods:
            self._expected.pop(node, None)

    def compute_load(self, node: str, measured: NodeLoad, victims: Mapping[str, PodLoad]) -> PodLoad:
        """Return how much of a node's measured load is that of evicted Pods: of these victims, and of those that left.

        `victims` are Pods on the node by uid, each with the part of its load that is assumed.
        """
        return _add(self._sum_departed(node, measured), self._compute_share(node, measured, victims))

    def _compute_share(self, node: str, measured: NodeLoad, victims: Mapping[str, PodLoad]) -> PodLoad:
        pods, departed = self._expected.get(node, {}), self._sum_departed(node, measured)
        others = _sum_loads(load for uid, load in pods.items() if uid not in victims)
        contained = _sum_loads(_subtract(pods[uid], assumed) for uid, assumed in victims.items() if uid in pods)
        found = PodLoad(measured.cpu_millis or 0.0, measured.memory_bytes or 0.0)
        rest = _subtract(found, _add(departed, others))
        return PodLoad(min(contained.cpu_millis, rest.cpu_millis), min(contained.memory_bytes, rest.memory_bytes))

    def _sum_departed(self, node: str, measured: NodeLoad) -> PodLoad:
        """Return what a measurement still contains of Pods that have left: all, if it is older."""
        outside = self._decay.compute_weight(self._window_seconds)
        cpu_millis = memory_bytes = 0.0
        for _, load, since_seconds in self._departed.get(node, ()):
            weight = self._decay.compute_weight(measured.measured_at_seconds - since_seconds)
            share = max(0.0, weight - outside) / (1.0 - outside) if outside < 1.0 else 1.0
            cpu_millis += share * load.cpu_millis
            memory_bytes += share * load.memory_bytes
        return PodLoad(cpu_millis, memory_bytes)

    def _drop_faded(self, now_seconds: float) -> None:
        while self._departures and now_seconds - self._departures[0].since_seconds > self._window_seconds:
            node = self._departures.popleft().node
            of_node = self._departed[node]
            of_node.popleft()
            if not of_node:
                del self._departed[node]


def _add(load: PodLoad, other: PodLoad) -> PodLoad:
    return PodLoad(load.cpu_millis + other.cpu_millis, load.memory_bytes + other.memory_bytes)


def _subtract(load: PodLoad, other: PodLoad) -> PodLoad:
    return PodLoad(max(0.0, load.cpu_millis - other.cpu_millis), max(0.0, load.memory_bytes - other.memory_bytes))


def _sum_loads(loads: Iterable[PodLoad]) -> PodLoad:
    cpu_millis = memory_bytes = 0.0
    for cpu, memory in loads:
        cpu_millis += cpu
        memory_bytes += memory
    return PodLoad(cpu_millis, memory_bytes)
