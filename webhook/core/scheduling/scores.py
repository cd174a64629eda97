"""Scores: weighted terms of free cpu, free memory, latency, nearness and risk, normalised to an extender's range."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import filterfalse
from math import inf, pow  # noqa: A004  of two floats it is a float
from operator import attrgetter
from typing import NamedTuple

from webhook.core.policy_fields.scheduling import Risk, ScoreWeights
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.extender_api import HostPriority
from webhook.core.scheduling.node_table import NodeRow, NodeRows, SchedulableNode
from webhook.core.scheduling.topology import Nearness

SCORE_MAX = 10
"""MaxExtenderPriority of kube-scheduler."""

_get_score = attrgetter("score")

NearOf = Callable[[SchedulableNode], float]
"""Returns how near a node is, from 0 to 1."""


class ScoreTerms(NamedTuple):
    """Terms of one node, each from 0 to 1, and the score, a whole number from 0 to `SCORE_MAX`."""

    free_cpu: float
    free_memory: float
    latency: float
    near: float
    score: int
    risk: float | None = None
    """None without a weight."""


class _Scale(NamedTuple):
    """Factors of the terms, and an offset, from the worst possible sum (0) to the best possible one (`SCORE_MAX`)."""

    cpu: float
    memory: float
    latency: float
    near: float
    risk: float
    offset: float

    @classmethod
    @lru_cache(maxsize=64)
    def from_weights(cls, weights: ScoreWeights) -> "_Scale":
        factors = weights.cpu, weights.memory, weights.latency, weights.topology, weights.risk
        lowest = sum(factor for factor in factors if factor < 0)
        highest = sum(factor for factor in factors if factor > 0)
        if highest == lowest:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return cls(*(SCORE_MAX * (factor / (highest - lowest)) for factor in (*factors, -lowest)))


_RISK = Risk()


def compute_risk(average: float, deviation: float, risk: Risk) -> float:
    """Return the risk of a resource by shares of the allocatable amount: from 0, idle and steady, to 1."""
    spread = risk.margin * pow(min(1.0, deviation), 1 / risk.sensitivity)
    return (min(1.0, average) + min(1.0, spread)) / 2


def compute_node_risk(row: NodeRow, free_cpu: float, free_memory: float, risk: Risk) -> float:
    """Return the larger risk of the resources that are measured, with these free shares; 0 if none is.

    A resource that the node lacks has the largest.
    """
    load, node = row.load, row.node
    if load is None:
        return 0.0
    found = [0.0]
    if load.cpu_millis is not None:
        deviation = (load.cpu_deviation_millis or 0.0) / node.cpu_millis if node.cpu_millis > 0 else inf
        found.append(compute_risk(1.0 - free_cpu, deviation, risk))
    if load.memory_bytes is not None:
        deviation = (load.memory_deviation_bytes or 0.0) / node.memory_bytes if node.memory_bytes > 0 else inf
        found.append(compute_risk(1.0 - free_memory, deviation, risk))
    return max(found)


def compute_scores(
    asked: Iterable[str],
    rows: Mapping[str, NodeRow],
    load: PodLoad,
    weights: ScoreWeights,
    near: NearOf,
    risk: Risk = _RISK,
) -> dict[str, int]:
    """Return the scores of nodes, with the Pod's own expected load on each.

    A node without a row is left out. One that is silent has 0.
    """
    by_cpu, by_memory, by_latency, by_near, by_risk, offset = _Scale.from_weights(weights)
    reads_load = bool(by_cpu or by_memory or by_latency or by_risk)
    rates_nearness = near is not _rate_nothing_near
    millis, bytes_ = load
    found: dict[str, int] = {}
    for name in asked:
        row = rows.get(name)
        if row is None:
            continue
        if reads_load and row.is_silent:  # it must not outscore a measured node, whatever the weights are
            found[name] = 0
            continue
        cpu, of_milli, memory, of_byte, latency = row.room
        cpu -= millis * of_milli
        memory -= bytes_ * of_byte
        if cpu < 0.0:  # noqa: PLR1730  for each node: max() is slower
            cpu = 0.0
        if memory < 0.0:  # noqa: PLR1730  as above
            memory = 0.0
        weighed = by_near * near(row.node) if rates_nearness else 0.0
        if by_risk:
            weighed += by_risk * compute_node_risk(row, cpu, memory, risk)
        found[name] = round(offset + by_cpu * cpu + by_memory * memory + by_latency * latency + weighed)
    return found


class NodeScores:
    """The scores of nodes for one kind of Pod. Only those of rows that have changed are computed again."""

    def __init__(self, load: PodLoad, weights: ScoreWeights, risk: Risk = _RISK) -> None:
        self._load = load
        self._weights = weights
        self._risk = risk
        self._known: dict[str, HostPriority] = {}
        self._version = -1
        self._nearness: Nearness | None = None
        self._near_version = 0

    def __len__(self) -> int:
        return len(self._known)

    def update(self, rows: NodeRows, nearness: Nearness | None) -> None:
        """Score the rows that have changed since the last call, and the nodes whose nearness has changed."""
        changed = self._list_changed(rows, nearness)
        if changed is None:
            self._known, changed = {}, rows.by_name.keys()
        self._version, self._nearness = rows.changes.version, nearness
        self._near_version = 0 if nearness is None else nearness.changes.version
        for name in filterfalse(rows.by_name.__contains__, changed):
            self._known.pop(name, None)
        found = compute_scores(changed, rows.by_name, self._load, self._weights, choose_nearness(nearness), self._risk)
        self._known.update(zip(found, map(HostPriority, found, found.values()), strict=True))

    def _list_changed(self, rows: NodeRows, nearness: Nearness | None) -> AbstractSet[str] | None:
        """Return the nodes to score again; None: all."""
        if nearness is not self._nearness:
            return None
        changed = rows.changes.list_since(self._version)
        moved = frozenset[str]() if nearness is None else nearness.changes.list_since(self._near_version)
        return None if changed is None or moved is None else changed | moved

    def select_scores(self, asked: Iterable[str]) -> list[HostPriority]:
        """Return the scores of nodes. A node without a row is left out."""
        return list(filter(None, map(self._known.get, asked)))


def choose_nearness(nearness: Nearness | None) -> NearOf:
    """Return the function that rates nearness: 0 for all nodes without Pods to be near to."""
    return _rate_nothing_near if nearness is None else nearness.rate_node


def _rate_nothing_near(_: SchedulableNode) -> float:
    return 0.0


def choose_best(found: Sequence[HostPriority], count: int) -> list[str]:
    """Return the names of the `count` best nodes, the best first; of equal ones those that were asked for first.

    Scores are few small numbers, so that they are searched as bytes: sorting all nodes is slower.
    """
    scores, best = bytes(map(_get_score, found)), list[str]()
    for score in range(SCORE_MAX, -1, -1):
        place = scores.find(score)
        while place >= 0 and len(best) < count:
            best.append(found[place].host)
            place = scores.find(score, place + 1)
    return best


def compute_terms(row: NodeRow, load: PodLoad, weights: ScoreWeights, near: NearOf, risk: Risk = _RISK) -> ScoreTerms:
    """Return the terms of one node, and the score that `compute_scores` gives it."""
    name, room = row.node.name, row.room
    cpu = max(0.0, room.cpu - load.cpu_millis * room.of_milli)
    memory = max(0.0, room.memory - load.memory_bytes * room.of_byte)
    [score] = compute_scores((name,), {name: row}, load, weights, near, risk).values()
    found = compute_node_risk(row, cpu, memory, risk) if weights.risk else None
    return ScoreTerms(cpu, memory, room.latency, near(row.node), score, found)
