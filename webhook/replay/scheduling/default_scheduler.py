"""Model of kube-scheduler: requests that fit, nodeSelector, and its scores LeastAllocated and BalancedAllocation.

Source: pkg/scheduler/framework/plugins/noderesources, Kubernetes 1.36. Other filters and scores are left out. Where
kube-scheduler chooses one of several best nodes at random, the model takes the first by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.replay.scheduling.nodes import SimulatedNode

_MILLI = pod_requests.NANO // 1000
_SCORE_MAX = 100
_UNASKED_CPU_MILLIS = 100
_UNASKED_MEMORY_BYTES = 200 << 20
"""What a Pod without requests counts in scores."""


@dataclass(slots=True)
class _Requested:
    """Requests of the Pods on one node, and as scores count them."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    scored_cpu_millis: int = 0
    scored_memory_bytes: int = 0
    pods: int = 0

    def add(self, other: "_Requested", sign: int) -> None:
        self.cpu_millis += sign * other.cpu_millis
        self.memory_bytes += sign * other.memory_bytes
        self.scored_cpu_millis += sign * other.scored_cpu_millis
        self.scored_memory_bytes += sign * other.scored_memory_bytes
        self.pods += sign


class DefaultScheduler:
    """Knows what the Pods on each node request."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        self._nodes = {one.node.name: one for one in nodes}
        self._requested = {name: _Requested() for name in self._nodes}

    def bind(self, pod: Pod, node: str, sign: int = 1) -> None:
        """Count a Pod on a node, or with `sign` -1 no longer. Other nodes than the simulated ones are ignored."""
        if node in self._requested:
            self._requested[node].add(_asked(pod), sign)

    def feasible(self, pod: Pod) -> list[str]:
        """Return the nodes on which a Pod fits."""
        asked, selector = _asked(pod), pod.spec.node_selector or {}
        return [name for name, one in self._nodes.items() if self._fits(one, asked) and _selected(one, selector)]

    def scores(self, pod: Pod, nodes: Iterable[str]) -> dict[str, int]:
        """Return the scores of nodes."""
        asked = _asked(pod)
        return {name: self._score(name, asked) for name in nodes}

    def _fits(self, one: SimulatedNode, asked: _Requested) -> bool:
        node, used = one.node, self._requested[one.node.name]
        return (
            used.pods < one.pods_max
            and used.cpu_millis + asked.cpu_millis <= node.cpu_millis
            and used.memory_bytes + asked.memory_bytes <= node.memory_bytes
        )

    def _score(self, name: str, asked: _Requested) -> int:
        node, used = self._nodes[name].node, self._requested[name]
        pairs = (
            (used.scored_cpu_millis + asked.scored_cpu_millis, int(node.cpu_millis)),
            (used.scored_memory_bytes + asked.scored_memory_bytes, int(node.memory_bytes)),
        )
        least = sum(_free(requested, of) for requested, of in pairs) // len(pairs)
        cpu, memory = (min(1.0, requested / of) if of else 1.0 for requested, of in pairs)
        return least + int((1 - abs(cpu - memory) / 2) * _SCORE_MAX)


def _free(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable or not allocatable else (allocatable - requested) * _SCORE_MAX // allocatable


def _selected(one: SimulatedNode, selector: dict[str, str]) -> bool:
    return all(one.node.labels.get(key) == value for key, value in selector.items())


def _asked(pod: Pod) -> _Requested:
    cpu = pod_requests.total(pod, "requests", "cpu") // _MILLI
    memory = pod_requests.total(pod, "requests", "memory") // pod_requests.NANO
    return _Requested(cpu, memory, cpu or _UNASKED_CPU_MILLIS, memory or _UNASKED_MEMORY_BYTES)
