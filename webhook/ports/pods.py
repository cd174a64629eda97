"""The cluster's Pods, followed."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from webhook.core.kubernetes.pod import Pod


class Continuity(Struct, frozen=True):
    """What a watch has seen without a gap: all that was written since `since_us`, up to the version."""

    version: int
    since_us: int


class PodLookup(Struct, frozen=True):
    """Result of a lookup by name: the Pod, None for none, and the version of the read."""

    pod: Pod | None
    version: int


class PodEventHandler(Protocol):
    """Receiver of a Pod watch's events, one call at a time."""

    async def begin(self) -> None:
        """Start a list of all Pods; an earlier list may have been abandoned."""
        ...

    async def listed(self, pods: Sequence[Pod]) -> None:
        """Handle a page of the list."""
        ...

    async def complete(self) -> None:
        """End the list: Pods on no page are deleted."""
        ...

    async def changed(self, pod: Pod, *, gone: bool) -> None:
        """Handle a Pod's current state, or its last one before deletion."""
        ...

    async def passed(self, pod: Pod) -> None:
        """Take an earlier state of a Pod: what the list brought of it is newer, and it is gone where it had none."""
        ...


class PodWatch(Protocol):
    """The cluster's Pods, followed."""

    @property
    def continuity(self) -> Continuity | None:
        """The part that has been delivered without a gap, None for nothing."""
        ...

    async def run(self, taker: PodEventHandler) -> None:
        """Follow until cancelled."""
        ...

    def list_again(self) -> None:
        """List again soon; continuity is kept."""
        ...

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        """Look up a Pod with a consistent read; None without an answer."""
        ...
