"""Scores: weighted terms of free cpu, free memory, latency and nearness, normalised to what an extender may return."""

from collections.abc import Callable
from typing import NamedTuple

from webhook.core.policy_spec.scheduling import ScoreWeights
from webhook.core.scheduling.node_table import NodeRow
from webhook.core.scheduling.pod_load import PodLoad

SCORE_MAX = 10
"""MaxExtenderPriority of kube-scheduler."""
_SLOWEST_SECONDS = 0.5
"""Latency that counts as 1."""
_UNMEASURED = 0.5
"""Free share of a node without data: neither better nor worse than the others."""


class ScoreTerms(NamedTuple):
    """Terms of one node, each from 0 to 1, and the score, a whole number from 0 to `SCORE_MAX`."""

    free_cpu: float
    free_memory: float
    latency: float
    near: float
    score: int


def scored(row: NodeRow, asked: PodLoad, weights: ScoreWeights, near: Callable[[NodeRow], float]) -> ScoreTerms:
    """Return the terms and the score of a node, with the Pod's own expected load on it."""
    cpu, memory = row.cpu_used(asked.cpu_millis), row.memory_used(asked.memory_bytes)
    free_cpu = _UNMEASURED if cpu is None else _within(1 - cpu)
    free_memory = _UNMEASURED if memory is None else _within(1 - memory)
    seconds = None if row.load is None else row.load.latency_seconds
    latency = 0.0 if seconds is None else _within(seconds / _SLOWEST_SECONDS)
    terms = free_cpu, free_memory, latency, near(row)
    return ScoreTerms(*terms, normalised(terms, weights))


def normalised(terms: tuple[float, float, float, float], weights: ScoreWeights) -> int:
    """Return the weighted sum on the scale from the worst possible one (0) to the best possible one (`SCORE_MAX`)."""
    factors = weights.cpu, weights.memory, weights.latency, weights.topology
    lowest = sum(factor for factor in factors if factor < 0)
    highest = sum(factor for factor in factors if factor > 0)
    if highest == lowest:
        return 0
    reached = sum(factor * term for factor, term in zip(factors, terms, strict=True))
    return round(SCORE_MAX * (reached - lowest) / (highest - lowest))


def _within(value: float) -> float:
    return min(1.0, max(0.0, value))
