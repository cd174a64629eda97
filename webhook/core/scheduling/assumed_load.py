"""Assumed load: the expected load of Pods that were assigned to a node lately, and are not measured yet."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from webhook.core.scheduling.node_load import Decay
from webhook.core.scheduling.pod_load import NO_LOAD, PodLoad

CONFIRMED_SECONDS = 5.0
"""A Pod whose assignment the watch does not confirm within this time was not assigned."""


class Assignment(Struct, gc=False):
    """A Pod on a node. `is_tentative`: the node was scored best, and the watch has not confirmed the Pod there."""

    node: str
    load: PodLoad
    since_seconds: float
    settle_seconds: float
    is_tentative: bool
    share: float = 1.0
    """The share of its load that is in the sum of its node."""


class AssumedLoad:
    """Assignments of the last minutes by Pod uid, and the sum of their load by node.

    A Pod's whole expected load counts until `settle`. Then its share fades with the decay of the nodes' average: what
    is no longer assumed is what the average has taken in.
    """

    def __init__(self, decay: Decay, window_seconds: float) -> None:
        self._decay = decay
        self._window_seconds = window_seconds
        self._pods: dict[str, Assignment] = {}
        self._sums: dict[str, PodLoad] = {}

    def configure(self, decay: Decay, window_seconds: float) -> None:
        """Use another decay and window from the next `settle` on."""
        self._decay = decay
        self._window_seconds = window_seconds

    def __len__(self) -> int:
        return len(self._pods)

    def counts(self) -> Mapping[str, int]:
        """Return how many assignments each node has; a node without one is not in it."""
        return Counter(pod.node for pod in self._pods.values())

    def of(self, node: str) -> PodLoad:
        """Return the assumed load of a node, as of the last `settle` and the assignments since."""
        return self._sums.get(node, NO_LOAD)

    def assign(self, uid: str, node: str, load: PodLoad, now_seconds: float, settle_seconds: float) -> None:
        """Assume that a Pod goes to the node that was scored best. A confirmed assignment stays as it is."""
        known = self._pods.get(uid)
        if known is not None and not known.is_tentative:
            return
        self._put(uid, Assignment(node, load, now_seconds, settle_seconds, is_tentative=True))

    def confirm(self, uid: str, node: str, load: PodLoad, since_seconds: float, settle_seconds: float) -> None:
        """Take over what the watch shows: a Pod is on this node since then. It may replace an assumption."""
        known = self._pods.get(uid)
        if known is not None and known.node == node:
            known.is_tentative = False
            return
        self._put(uid, Assignment(node, load, since_seconds, settle_seconds, is_tentative=False))

    def remove(self, uid: str) -> str | None:
        """Forget a Pod that was deleted, or has ended; return the node that it was assigned to, if any."""
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        self._add(known.node, known.load, -known.share)
        return known.node

    def settle(self, now_seconds: float) -> Mapping[str, PodLoad]:
        """Recompute and return all sums as of now. Drop Pods that are measured by now, or were not confirmed."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if self._counts(pod, now_seconds)}
        self._sums = {}
        for pod in self._pods.values():
            unseen_seconds = now_seconds - pod.since_seconds - pod.settle_seconds
            pod.share = self._decay.weight(unseen_seconds)
            self._add(pod.node, pod.load, pod.share)
        return self._sums

    def _counts(self, pod: Assignment, now_seconds: float) -> bool:
        age_seconds = now_seconds - pod.since_seconds
        if pod.is_tentative:
            return age_seconds <= CONFIRMED_SECONDS
        return age_seconds <= pod.settle_seconds + self._window_seconds

    def _put(self, uid: str, pod: Assignment) -> None:
        self.remove(uid)
        self._pods[uid] = pod
        self._add(pod.node, pod.load, pod.share)

    def _add(self, node: str, load: PodLoad, share: float) -> None:
        so_far = self._sums.get(node, NO_LOAD)
        self._sums[node] = PodLoad(
            max(0.0, so_far.cpu_millis + share * load.cpu_millis),
            max(0.0, so_far.memory_bytes + share * load.memory_bytes),
        )
