"""Watch of the cluster's Pods, their eviction, and the workload controllers whose Pods were denied."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from webhook.core.controller.held_controller import ControllerReference, CreatingController
from webhook.core.kubernetes.pod import Pod


class CreationFailureHandler(Protocol):
    """Receiver of the Events about Pods that a controller could not create."""

    async def on_creation_failed(self, controller: ControllerReference, *, at_us: int, is_held: bool) -> None:
        """Handle a failure, at the time of its newest Event. `is_held`: quota, breaker or store denied the Pod."""
        ...


class ControllerClient(Protocol):
    """Controllers that create Pods. ControllerAccessError without an answer."""

    async def run(self, handler: CreationFailureHandler) -> None:
        """Watch creation failures until cancelled, beginning with those of the last hour, oldest first."""
        ...

    async def find(self, controller: ControllerReference) -> CreatingController | None:
        """Return a controller, None if it does not exist any more."""
        ...

    async def wake(self, controller: ControllerReference, at_us: int) -> bool:
        """Change an annotation of a controller, so that it tries again; False if it does not exist any more."""
        ...


class Continuity(Struct, frozen=True):
    """Part of a watch without a gap: all writes since `since_us`, up to the version."""

    version: int
    since_us: int


class PodLookup(Struct, frozen=True):
    """Result of a lookup by name: the Pod, None for none, and the version of the read."""

    pod: Pod | None
    version: int


class PodEventHandler(Protocol):
    """Receiver of a Pod watch's events, one call at a time."""

    async def on_list_begun(self) -> None:
        """Start a list of all Pods; an earlier list may have been abandoned."""
        ...

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        """Handle a page of the list."""
        ...

    async def on_list_complete(self) -> None:
        """End the list: Pods on no page are deleted."""
        ...

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        """Handle a Pod's current state, or its last one before deletion."""
        ...

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        """Handle a Pod that cannot be decoded, of a list or changed: it stays as it was, unless it is gone."""
        ...

    async def on_passed(self, pod: Pod) -> None:
        """Handle an earlier state of a Pod: the list has a newer one, or the Pod is gone if the list had none."""
        ...


class PodWatch(Protocol):
    """Watch of the cluster's Pods."""

    @property
    def continuity(self) -> Continuity | None:
        """The part delivered without a gap, None for nothing."""
        ...

    async def run(self, handler: PodEventHandler) -> None:
        """Watch until cancelled."""
        ...

    def list_again(self) -> None:
        """List again soon, after a list that is under way; continuity is kept."""
        ...

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        """Look up a Pod with a consistent read; None without an answer."""
        ...


class EvictionResult(StrEnum):
    """What became of the eviction of one Pod."""

    EVICTED = "evicted"
    GONE = "gone"
    CHANGED = "changed"
    """It is not as it was known, or is another Pod of its name: it stays."""
    BLOCKED = "blocked"
    """Its PodDisruptionBudget does not allow it now, or the API server is overloaded."""


class PodEvictions(Protocol):
    """Evictions of Pods, which respect disruption budgets, and which Jobs can tell from failures."""

    async def evict(self, namespace: str, name: str, uid: str, version: str) -> EvictionResult:
        """Evict a Pod as of its resourceVersion, and no other. EvictionError: no answer, or a refusal."""
        ...
