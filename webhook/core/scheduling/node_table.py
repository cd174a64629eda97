"""Node table: what the extender knows of each node when it is asked, and which of it has changed."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple

from msgspec import Struct

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.assumed_load import NO_LOAD, PodLoad
from webhook.core.scheduling.measured_load import REQUESTS, NodeLoad
from webhook.core.scheduling.numa import NumaZones

_NAMES_MIN = 1024
_MILLI = pod_requests.NANO // 1000


class ChangeLog:
    """Names in the order of their changes; the oldest ones are dropped."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._first = 0

    @property
    def version(self) -> int:
        """Number of changes so far."""
        return self._first + len(self._names)

    def record(self, names: Iterable[str], count: int) -> None:
        """Record that these names have changed; `count` is the number of all names."""
        if len(self._names) >= max(_NAMES_MIN, 4 * count):
            self._first += len(self._names)
            self._names.clear()
        self._names.extend(names)

    def list_since(self, version: int) -> AbstractSet[str] | None:
        """Return the names that have changed since a version; None if the log no longer reaches back to it."""
        return None if version < self._first else set(self._names[version - self._first :])


_LATENCY_SECONDS_MAX = 0.5
"""Latency that counts as 1."""
_UNMEASURED = 0.5
"""Free share of a node without data: neither better nor worse than the others."""


class SchedulableNode(Struct, frozen=True, gc=False):
    """A Node object: its allocatable amounts and its labels."""

    name: str
    cpu_millis: float
    memory_bytes: float
    labels: Mapping[str, str] = {}

    @property
    def whole_load(self) -> PodLoad:
        """The load of a Pod that uses all of it."""
        return PodLoad(self.cpu_millis, self.memory_bytes)


def is_large_enough(node: SchedulableNode, pod: Pod) -> bool:
    """Return whether a Pod fits on a node that is empty: kube-scheduler chooses no other one."""
    cpu, memory = (pod_requests.compute_total(pod, "requests", name) for name in ("cpu", "memory"))
    return cpu / _MILLI <= node.cpu_millis and memory / pod_requests.NANO <= node.memory_bytes


class KnownNode(Struct, frozen=True):
    """A Node, and the addresses by which sources of load may name it."""

    node: SchedulableNode
    addresses: tuple[str, ...] = ()


class Signals(NamedTuple):
    """What filters compare with limits, -inf for what is not measured; and what the load of one more Pod adds."""

    unknown: float
    """1 without fresh measurements, else 0."""
    hot_cpu: float
    hot_memory: float
    hot_combined: float
    pressure_cpu: float
    pressure_memory: float
    pressure_io: float
    of_milli: float = 0.0
    """The share of the allocatable cpu that a millicore takes; 0 of a node that has none."""
    of_byte: float = 0.0


class Room(NamedTuple):
    """What scores are computed from: free shares, the share that one unit takes, and the latency term, 0 to 1."""

    cpu: float
    of_milli: float
    memory: float
    of_byte: float
    latency: float


class NodeRow(Struct, frozen=True, gc=False):
    """A node with its load, and what is assumed of new Pods; `signals` and `room` follow from these.

    `load` is None, or of the source `requests`, if nothing was measured. `is_silent`: other nodes are measured now, and
    this one is not. Its last load, if there is one, counts for the filters, and it scores last.
    """

    node: SchedulableNode
    load: NodeLoad | None
    assumed: PodLoad
    numa: NumaZones | None
    """None unless the node's Topology Manager refuses Pods that fit into no single zone."""
    signals: Signals
    room: Room
    is_silent: bool = False

    @classmethod
    def from_node(
        cls,
        node: SchedulableNode,
        load: NodeLoad | None = None,
        assumed: PodLoad = NO_LOAD,
        numa: NumaZones | None = None,
        *,
        is_silent: bool = False,
    ) -> "NodeRow":
        """Return the row of a node, prepared for calls."""
        if load is None:
            return cls(node, None, assumed, numa, _UNKNOWN, _SILENT_ROOM if is_silent else _UNMEASURED_ROOM, is_silent)
        cpu = _compute_used_share(load.cpu_millis, assumed.cpu_millis, node.cpu_millis)
        memory = _compute_used_share(load.memory_bytes, assumed.memory_bytes, node.memory_bytes)
        is_measured = load.source != REQUESTS
        hot = _compute_hot_signals(cpu, memory) if is_measured else _NEVER_HOT
        pressures = (
            _convert_signal(load.cpu_pressure),
            _convert_signal(load.memory_pressure),
            _convert_signal(load.io_pressure),
        )
        units = _compute_unit_share(node.cpu_millis), _compute_unit_share(node.memory_bytes)
        signals = Signals(0.0 if is_measured and not is_silent else 1.0, *hot, *pressures, *units)
        if is_silent:
            return cls(node, load, assumed, numa, signals, _SILENT_ROOM, is_silent)
        seconds = load.latency_seconds
        latency = 0.0 if seconds is None else min(1.0, max(0.0, seconds / _LATENCY_SECONDS_MAX))
        room = Room(*_compute_free_share(cpu, units[0]), *_compute_free_share(memory, units[1]), latency)
        return cls(node, load, assumed, numa, signals, room)

    def compute_cpu_share(self) -> float | None:
        """Return the used share of the allocatable cpu, None if it is unknown."""
        used = None if self.load is None else self.load.cpu_millis
        return _compute_used_share(used, self.assumed.cpu_millis, self.node.cpu_millis)

    def compute_memory_share(self) -> float | None:
        """Return the used share of the allocatable memory, None if it is unknown."""
        used = None if self.load is None else self.load.memory_bytes
        return _compute_used_share(used, self.assumed.memory_bytes, self.node.memory_bytes)


_NEVER_HOT = -inf, -inf, -inf
_UNKNOWN = Signals(1.0, *_NEVER_HOT, -inf, -inf, -inf)
_UNMEASURED_ROOM = Room(_UNMEASURED, 0.0, _UNMEASURED, 0.0, 0.0)
_SILENT_ROOM = Room(0.0, 0.0, 0.0, 0.0, 0.0)


def _compute_used_share(used: float | None, assumed: float, allocatable: float) -> float | None:
    """Return a used share, None if it is unknown; a node without any of the resource is used up."""
    if used is None:
        return None
    return (used + assumed) / allocatable if allocatable > 0 else 1.0


def _compute_hot_signals(cpu: float | None, memory: float | None) -> tuple[float, float, float]:
    combined = None if cpu is None or memory is None else cpu + memory
    return _convert_signal(cpu), _convert_signal(memory), _convert_signal(combined)


def _convert_signal(value: float | None) -> float:
    return -inf if value is None else value


def _compute_unit_share(allocatable: float) -> float:
    return 1.0 / allocatable if allocatable > 0 else 0.0


def _compute_free_share(used: float | None, of_unit: float) -> tuple[float, float]:
    """Return the free share, and the share that one unit more takes of it."""
    return (_UNMEASURED, 0.0) if used is None else (1.0 - used, of_unit)


class NodeRows:
    """Rows that change one by one. `by_name` is for reading."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeRow] = {}
        self.changes = ChangeLog()

    def put(self, row: NodeRow) -> None:
        """Add or replace the row of a node."""
        self.by_name[row.node.name] = row
        self.changes.record((row.node.name,), len(self.by_name))

    def drop(self, name: str) -> None:
        """Remove the row of a node, if there is one."""
        if self.by_name.pop(name, None) is not None:
            self.changes.record((name,), len(self.by_name))
