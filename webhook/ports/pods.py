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
    """Which Pod has a name, None for none, as of a version."""

    pod: Pod | None
    version: int


class PodEventHandler(Protocol):
    """Who is told of the cluster's Pods, one call after the other."""

    async def begin(self) -> None:
        """Hear that all Pods are listed anew; a list that was begun before may have been given up."""
        ...

    async def listed(self, pods: Sequence[Pod]) -> None:
        """Take a page of the list."""
        ...

    async def complete(self) -> None:
        """Hear that what was on no page is gone."""
        ...

    async def changed(self, pod: Pod, *, gone: bool) -> None:
        """Take a Pod as it is now, or as it last was."""
        ...

    async def passed(self, pod: Pod) -> None:
        """Take an earlier state of a Pod: what the list brought of it is newer, and it is gone where it had none."""
        ...


class PodWatch(Protocol):
    """The cluster's Pods, followed."""

    @property
    def continuity(self) -> Continuity | None:
        """What has been told without a gap, None where nothing has."""
        ...

    async def run(self, taker: PodEventHandler) -> None:
        """Follow until cancelled."""
        ...

    def list_again(self) -> None:
        """List anew, soon; what was seen without a gap stays so."""
        ...

    async def find(self, namespace: str, name: str) -> PodLookup | None:
        """Ask the cluster itself, whatever its caches hold; None where there is no answer."""
        ...
