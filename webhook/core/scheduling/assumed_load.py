"""Assumed load: the expected load of Pods that were assigned to a node recently, and are not measured yet.

Why: docs/design/assumed-load.md.
"""

from collections.abc import KeysView, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Pod
from webhook.core.lru_cache import LruCache
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.measured_load import Decay

_MILLI = pod_requests.NANO // 1000
_CPU_MILLIS = 250.0
_MEMORY_BYTES = 200.0 * (1 << 20)
"""Expected of a Pod without requests and limits."""
_ESTIMATES_MAX = 256


class PodLoad(NamedTuple):
    cpu_millis: float
    memory_bytes: float


NO_LOAD = PodLoad(0.0, 0.0)


def bound_load(load: PodLoad, most: PodLoad) -> PodLoad:
    """Return the load of a Pod on a node that has this much: a limit may be more."""
    return PodLoad(min(load.cpu_millis, most.cpu_millis), min(load.memory_bytes, most.memory_bytes))


def estimate_load(pod: Pod, estimate: Estimate) -> PodLoad:
    """Return the load expected of a Pod: a factor of the larger of request and limit, a default without either.

    It is never more than the limit, if all containers have one.
    """
    cpu, memory = _estimate_amount(pod, "cpu", estimate.cpu), _estimate_amount(pod, "memory", estimate.memory)
    return PodLoad(
        _CPU_MILLIS if cpu is None else cpu / _MILLI, _MEMORY_BYTES if memory is None else memory / pod_requests.NANO
    )


class LoadEstimates:
    """Expected loads of Pods. Those of one template ask for the same, and so does each Pod in its second call."""

    def __init__(self) -> None:
        self._known: LruCache[tuple[bytes, float, float], PodLoad] = LruCache(_ESTIMATES_MAX)

    def __len__(self) -> int:
        return len(self._known)

    def find_load(self, pod: Pod, estimate: Estimate) -> PodLoad:
        """Return what `estimate_load` does."""
        spec = pod.spec
        asked = msgspec.json.encode((spec.containers, spec.init_containers, spec.resources, spec.overhead))
        kind = asked, estimate.cpu, estimate.memory
        found = self._known.get(kind)
        if found is None:
            found = estimate_load(pod, estimate)
            self._known.keep(kind, found)
        return found


def _estimate_amount(pod: Pod, resource: str, factor: float) -> float | None:
    """Return the amount expected of one resource, None if the Pod names none. The API server has checked quantities."""
    limit = pod_requests.compute_total(pod, "limits", resource)
    larger = max(pod_requests.compute_total(pod, "requests", resource), limit)
    if not larger:
        return None
    return limit if factor > 1 and factor * larger > limit and _is_limited(pod, resource) else factor * larger


def _is_limited(pod: Pod, resource: str) -> bool:
    """Return whether a Pod cannot use more than its limit of a resource."""
    spec = pod.spec
    if spec.resources is not None and resource in (spec.resources.limits or ()):
        return True
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return all(
        container.resources is not None and resource in (container.resources.limits or ()) for container in containers
    )


CONFIRMED_SECONDS = 5.0
"""A Pod whose assignment the watch does not confirm within this time was not assigned."""
NOMINATED_SECONDS = 615.0
"""How long the scheduler may wait for the volumes of a nominated Pod: bindTimeoutSeconds, and a little more."""


class Assignment(Struct, gc=False):
    """A Pod on a node. `is_tentative`: the watch has not confirmed the Pod there; it ends after `kept_seconds` then."""

    node: str
    load: PodLoad
    since_seconds: float
    settle_seconds: float
    is_tentative: bool
    kept_seconds: float = CONFIRMED_SECONDS


class AssumedLoad:
    """Assignments of the last minutes by node and Pod uid, and the sum of their load by node.

    A Pod's whole expected load counts until it was bound, and for `settle` from then on. Then its share fades with the
    decay of the nodes' average, which takes in what is no longer assumed.
    """

    def __init__(self, decay: Decay, window_seconds: float) -> None:
        self._decay = decay
        self._window_seconds = window_seconds
        self._node_of: dict[str, str] = {}
        self._pods: dict[str, dict[str, Assignment]] = {}
        """By node, then by uid. Nodes without such Pods are not in it."""

    def configure(self, decay: Decay, window_seconds: float) -> None:
        """Use another decay and window from now on."""
        self._decay = decay
        self._window_seconds = window_seconds

    def __len__(self) -> int:
        return len(self._node_of)

    def list_nodes(self) -> KeysView[str]:
        """Return the nodes with assignments."""
        return self._pods.keys()

    def list_pods(self, node: str) -> tuple[str, ...]:
        """Return the uids of the Pods that are assigned to a node."""
        return tuple(self._pods.get(node, ()))

    def bound(self, node: str, most: PodLoad) -> None:
        """Count no Pod of a node for more than this."""
        for pod in self._pods.get(node, {}).values():
            pod.load = bound_load(pod.load, most)

    def count_pods(self) -> Mapping[str, int]:
        """Return how many assignments each node has; a node without one is not in it."""
        return {node: len(pods) for node, pods in self._pods.items()}

    def sum_load(self, node: str, now_seconds: float) -> PodLoad:
        """Return the assumed load of a node as of now. Drop Pods that are measured by now, or were not confirmed."""
        pods = self._pods.get(node)
        if pods is None:
            return NO_LOAD
        over: list[str] = []
        cpu_millis = memory_bytes = 0.0
        for uid, pod in pods.items():
            share = self._compute_share(pod, now_seconds)
            if share is None:
                over.append(uid)
                continue
            cpu_millis += share * pod.load.cpu_millis
            memory_bytes += share * pod.load.memory_bytes
        for uid in over:
            self.remove(uid)
        return PodLoad(cpu_millis, memory_bytes)

    def find_load(self, uid: str, node: str, now_seconds: float) -> PodLoad:
        """Return what is assumed of one Pod on a node as of now."""
        pod = self._pods.get(node, {}).get(uid)
        share = None if pod is None else self._compute_share(pod, now_seconds)
        if pod is None or share is None:
            return NO_LOAD
        return PodLoad(share * pod.load.cpu_millis, share * pod.load.memory_bytes)

    def assign(
        self,
        uid: str,
        node: str,
        load: PodLoad,
        now_seconds: float,
        settle_seconds: float,
        kept_seconds: float = CONFIRMED_SECONDS,
    ) -> str | None:
        """Assume that a Pod goes to the node that was scored best, or was nominated. A confirmed assignment stays.

        Return the node that it was assigned to before, if that was another one.
        """
        known = self._find_assignment(uid)
        if known is not None and not known.is_tentative:
            return None
        tentative = Assignment(node, load, now_seconds, settle_seconds, is_tentative=True, kept_seconds=kept_seconds)
        return self._put(uid, tentative)

    def confirm(self, uid: str, node: str, load: PodLoad, since_seconds: float, settle_seconds: float) -> str | None:
        """Record what the watch shows: a Pod is on this node since then. It may replace an assumption.

        Return the node that it was assigned to before, if that was another one.
        """
        known = self._find_assignment(uid)
        if known is not None and known.node == node:
            if known.is_tentative:
                known.is_tentative = False
                known.since_seconds = max(known.since_seconds, since_seconds)  # volumes may have taken long
            return None
        return self._put(uid, Assignment(node, load, since_seconds, settle_seconds, is_tentative=False))

    def withdraw(self, uid: str) -> str | None:
        """Forget where a Pod was assumed to go; return that node. A confirmed assignment stays: None is returned."""
        known = self._find_assignment(uid)
        return None if known is None or not known.is_tentative else self.remove(uid)

    def remove(self, uid: str) -> str | None:
        """Forget a Pod that was deleted, or has ended; return the node that it was assigned to, if any."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
        return node

    def _compute_share(self, pod: Assignment, now_seconds: float) -> float | None:
        """Return which share of a Pod's load is assumed; None if it is measured by now, or was not confirmed."""
        age_seconds = now_seconds - pod.since_seconds
        faded_seconds = age_seconds - pod.settle_seconds
        if age_seconds > pod.kept_seconds if pod.is_tentative else faded_seconds > self._window_seconds:
            return None
        fades = faded_seconds > 0 and not pod.is_tentative
        return self._decay.compute_weight(faded_seconds) if fades else 1.0

    def _find_assignment(self, uid: str) -> Assignment | None:
        node = self._node_of.get(uid)
        return None if node is None else self._pods[node][uid]

    def _put(self, uid: str, pod: Assignment) -> str | None:
        before = self.remove(uid)
        self._node_of[uid] = pod.node
        self._pods.setdefault(pod.node, {})[uid] = pod
        return None if before == pod.node else before
