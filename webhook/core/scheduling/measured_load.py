"""Measured load of a node: values with their source and time, averaged with decay, and chosen by freshness."""

from collections.abc import Iterable, Mapping
from math import isfinite, sqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

REQUESTS = "requests"
"""The source that measures nothing: it adds up what Pods ask for."""


class Decay(NamedTuple):
    """Weight of a sample: `factor` to the power of its age divided by `every_seconds`."""

    factor: float
    every_seconds: float

    def compute_weight(self, age_seconds: float) -> float:
        return float(self.factor ** (max(0.0, age_seconds) / self.every_seconds))


class NodeLoad(Struct, frozen=True, gc=False):
    """What one source measured of a node. None: this source does not measure it."""

    source: str
    measured_at_seconds: float
    cpu_millis: float | None = None
    memory_bytes: float | None = None
    latency_seconds: float | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    io_pressure: float | None = None
    cpu_deviation_millis: float | None = None
    """Standard deviation of the samples in the window, weighted as their average."""
    memory_deviation_bytes: float | None = None


def average_with_decay(samples: Iterable[tuple[float, float]], now_seconds: float, decay: Decay) -> float | None:
    """Return the average of samples, each a time and a value, weighted by age; None without any.

    Values that are no measurement (NaN, infinite, below 0) are ignored. Weights go by age, so the interval between
    samples does not matter, and every replica computes the same.
    """
    total = weights = 0.0
    for at_seconds, value in samples:
        if not isfinite(value) or value < 0:
            continue
        weight = decay.compute_weight(now_seconds - at_seconds)
        total += weight * value
        weights += weight
    return total / weights if weights else None


def compute_deviation(
    samples: Iterable[tuple[float, float]], average: float, now_seconds: float, decay: Decay
) -> float:
    """Return the standard deviation of samples from their average, both weighted by age."""
    apart = ((at_seconds, value - average) for at_seconds, value in samples if value >= 0)
    squares = ((at_seconds, distance * distance) for at_seconds, distance in apart)
    return sqrt(average_with_decay(squares, now_seconds, decay) or 0.0)


def merge_hotter(load: NodeLoad, other: NodeLoad) -> NodeLoad:
    """Return the larger values of two loads that a source has of one node: a hot node must not look cool."""
    first, second = astuple(load)[2:], astuple(other)[2:]
    return NodeLoad(
        load.source,
        max(load.measured_at_seconds, other.measured_at_seconds),
        *(a if b is None or (a is not None and a >= b) else b for a, b in zip(first, second, strict=True)),
    )


def keep_last_known(before: Mapping[str, NodeLoad], found: Mapping[str, NodeLoad]) -> dict[str, NodeLoad]:
    """Return what a source found, and for nodes that it no longer measures what it found last.

    A rate falls while its exporter is dead: the last values with a fresh time are better than the newest ones.
    """
    return {**before, **found}


def choose_freshest(
    ladder: Iterable[Mapping[str, NodeLoad]], node: str, now_seconds: float, stale_after_seconds: float
) -> NodeLoad | None:
    """Return the load of a node by the first source whose data is fresh; None if there is none."""
    for loads in ladder:
        load = loads.get(node)
        if load is not None and now_seconds - load.measured_at_seconds <= stale_after_seconds:
            return load
    return None


def choose_last_known(ladder: Iterable[Mapping[str, NodeLoad]], node: str, since_seconds: float) -> NodeLoad | None:
    """Return the newest load of a node that any source has measured since then; None if there is none."""
    found = [load for loads in ladder if (load := loads.get(node)) is not None]
    newest = max(found, key=lambda load: load.measured_at_seconds, default=None)
    return None if newest is None or newest.measured_at_seconds < since_seconds else newest
