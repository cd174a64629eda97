"""Unschedulable Pods in the events of the Pod watch: those that are bound, gone or woken wait no longer."""

from collections.abc import Callable, Sequence

from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.unschedulable_pods import UnschedulablePods
from webhook.ports import PodEventHandler


class UnschedulablePodEvents:
    """A `ports.PodEventHandler`, which hands each event on to another one first."""

    def __init__(self, index: PodEventHandler, waiting: UnschedulablePods, on_answered: Callable[[], None]) -> None:
        """Create it. `on_answered` is called for each Pod with the annotation that was asked for."""
        self._index = index
        self._waiting = waiting
        self._on_answered = on_answered
        self._unlisted: set[str] = set()

    async def on_list_begun(self) -> None:
        self._unlisted = self._waiting.list_uids()
        await self._index.on_list_begun()

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        await self._index.on_listed(pods)
        for pod in pods:
            self._see(pod)

    async def on_list_complete(self) -> None:
        await self._index.on_list_complete()
        for uid in self._unlisted:
            self._waiting.forget(uid)
        self._unlisted = set()

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        await self._index.on_changed(pod, gone=gone)
        if gone:
            self._waiting.forget(pod.metadata.uid)
        else:
            self._see(pod)

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        await self._index.on_unread(uid, gone=gone)
        if gone:
            self._waiting.forget(uid)
        else:
            self._unlisted.discard(uid)

    async def on_passed(self, pod: Pod) -> None:
        await self._index.on_passed(pod)

    def _see(self, pod: Pod) -> None:
        self._unlisted.discard(pod.metadata.uid)
        if self._waiting.see(pod):
            self._on_answered()
