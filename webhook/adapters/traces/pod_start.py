"""Starts of traced Pods: from their creation until they are Ready or have failed, by the controller's watch."""

from collections.abc import Callable

from msgspec import Struct

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod
from webhook.core.pods.start_outcome import StartResult, judge_start, read_created_us

_NEW_US = 10_000_000
"""Age up to which a Pod that is seen for the first time is new: an older one may have been Ready before."""
_DEADLINE_US = 3_600_000_000
"""A Pod that is not Ready by then has failed, and its span ends with the reason why it waits."""
_TRACKED_MAX = 10_000


class PodStart(Struct, frozen=True):
    """A finished start of a Pod of a service."""

    service: str
    namespace: str
    name: str
    uid: str
    node: str
    created_us: int
    taken_us: int
    result: StartResult


class PodStarts:
    """An observer of the watch's Pods. `is_drawn` selects Pods by their uid, `report` receives each start once."""

    def __init__(
        self, is_drawn: Callable[[str], bool], report: Callable[[PodStart], None], now_us: Callable[[], int]
    ) -> None:
        self._is_drawn = is_drawn
        self._report = report
        self._now_us = now_us
        self._settled: dict[str, bool] = {}
        """Pods that are starting, and those that are still new and have a span."""

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        """Keep what is tracked: a list does not change which Pods are starting."""

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_list_complete(self) -> None:
        """Do nothing: each Pod of a list is traced by itself."""

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        uid = pod.metadata.uid
        is_settled = self._settled.get(uid)
        if found is None or (is_settled is None and not self._is_drawn(uid)):
            return  # true of most Pods, which are not parsed
        since_us, now_us = read_created_us(pod), self._now_us()
        is_new = now_us - since_us < _NEW_US
        if is_settled and not is_new:
            del self._settled[uid]
        if is_settled or (is_settled is None and not (is_new and len(self._settled) < _TRACKED_MAX)):
            return
        end = judge_start(pod, since_us, _DEADLINE_US, now_us)
        self._settled[uid] = end is not None
        if end is not None and end.result is not None:
            node = pod.spec.node_name or ""
            started = found.service, found.namespace, found.name, uid, node, since_us, end.latency_us, end.result
            self._report(PodStart(*started))

    def on_deleted(self, uid: str) -> None:
        self._settled.pop(uid, None)
