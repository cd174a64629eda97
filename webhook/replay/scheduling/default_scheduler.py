"""Model of kube-scheduler: its filters by requests, node terms and taints, and LeastAllocated and BalancedAllocation.

Source: pkg/scheduler/framework/plugins, Kubernetes 1.36. Other filters and scores are left out: see `model_gaps`.
Where kube-scheduler chooses one of several best nodes at random, the model takes the first by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod, PodSpec
from webhook.core.placement.node_match import list_untolerated, terms_fit
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
        self._nodes = {simulated.node.name: simulated for simulated in nodes}
        self._requested = {name: _Requested() for name in self._nodes}
        self._allowed: dict[bytes, tuple[list[str], set[str]]] = {}
        """Nodes that terms and taints leave to Pods of a kind, and the reasons of the others."""

    def bind(self, pod: Pod, node: str, sign: int = 1) -> None:
        """Count a Pod on a node, or with `sign` -1 no longer. Other nodes than the simulated ones are ignored."""
        if node in self._requested:
            self._requested[node].add(_sum_requests(pod), sign)

    def find_feasible(self, pod: Pod) -> tuple[list[str], set[str]]:
        """Return the nodes that pass the filters, and the reasons why others do not, as kube-scheduler words them."""
        asked = _sum_requests(pod)
        allowed, unwanted = self._find_allowed(pod)
        found, reasons = [], {*unwanted}
        for name in allowed:
            reason = self._explain_full(name, asked)
            if reason:
                reasons.add(reason)
            else:
                found.append(name)
        return found, reasons

    def compute_scores(self, pod: Pod, nodes: Iterable[str]) -> dict[str, int]:
        """Return the scores of nodes."""
        asked = _sum_requests(pod)
        return {name: self._compute_score(name, asked) for name in nodes}

    def _find_allowed(self, pod: Pod) -> tuple[list[str], set[str]]:
        spec = pod.spec
        affinity = None if spec.affinity is None else spec.affinity.node_affinity
        kind = msgspec.json.encode((spec.node_selector, affinity, spec.tolerations))
        found = self._allowed.get(kind)
        if found is None:
            reasons = {name: _explain_unwanted(spec, simulated) for name, simulated in self._nodes.items()}
            allowed = [name for name, reason in reasons.items() if not reason]
            found = self._allowed[kind] = allowed, {*filter(None, reasons.values())}
        return found

    def _explain_full(self, name: str, asked: _Requested) -> str:
        """Return why a node has no room for a Pod, "" if it has. A resource that a Pod does not ask for suffices."""
        simulated, used = self._nodes[name], self._requested[name]
        if used.pods >= simulated.pods_max:
            return "Too many pods"
        if asked.cpu_millis and used.cpu_millis + asked.cpu_millis > simulated.node.cpu_millis:
            return "Insufficient cpu"
        if asked.memory_bytes and used.memory_bytes + asked.memory_bytes > simulated.node.memory_bytes:
            return "Insufficient memory"
        return ""

    def _compute_score(self, name: str, asked: _Requested) -> int:
        node, used = self._nodes[name].node, self._requested[name]
        pairs = (
            (used.scored_cpu_millis + asked.scored_cpu_millis, int(node.cpu_millis)),
            (used.scored_memory_bytes + asked.scored_memory_bytes, int(node.memory_bytes)),
        )
        least = sum(_compute_free_score(requested, of) for requested, of in pairs) // len(pairs)
        cpu, memory = (min(1.0, requested / of) if of else 1.0 for requested, of in pairs)
        return least + int((1 - abs(cpu - memory) / 2) * _SCORE_MAX)


def _compute_free_score(requested: int, allocatable: int) -> int:
    return 0 if requested > allocatable or not allocatable else (allocatable - requested) * _SCORE_MAX // allocatable


def _explain_unwanted(spec: PodSpec, simulated: SimulatedNode) -> str:
    """Return why a Pod's terms or a node's taints keep it off, "" if they do not, or are not known."""
    if simulated.taints is None:
        return ""
    if list_untolerated(spec, simulated.taints):
        return "node(s) had untolerated taint(s)"
    if terms_fit(spec, simulated.node.name, simulated.node.labels):
        return ""
    return "node(s) didn't match Pod's node affinity/selector"


def _sum_requests(pod: Pod) -> _Requested:
    cpu = pod_requests.compute_total(pod, "requests", "cpu") // _MILLI
    memory = pod_requests.compute_total(pod, "requests", "memory") // pod_requests.NANO
    return _Requested(cpu, memory, cpu or _UNASKED_CPU_MILLIS, memory or _UNASKED_MEMORY_BYTES)
