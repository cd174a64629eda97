"""Index of the cluster's Pods: those of services, and the uids of all that were deleted within an hour.

Its memory by Pod: docs/design/start-and-memory.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from webhook.core.pods.ownership import OwnedPod, mark_ended
from webhook.core.quota import Cost

DELETED_PODS_MAX = 100_000
DELETED_POD_KEPT_US = 3_600_000_000
"""Bounds of the kept uids of deleted Pods, in number and age: the store waits as long for a Pod that it has charged."""

_SHARED_VALUES_MAX = 10_000


class PodChange(NamedTuple):
    """One Pod before and after; None where it had no service."""

    before: OwnedPod | None
    after: OwnedPod | None


class PodIndex:
    """Pods by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, OwnedPod] = {}
        self._deleted: dict[str, int] = {}
        self._unlisted: set[str] = set()
        self._words: dict[str, str] = {}
        self._costs: dict[tuple[tuple[str, int], ...], Cost] = {}
        self.forgotten_until_us = 0
        """Pods deleted before this time may be missing here, although they existed."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        """Return whether a Pod is known to exist or to have existed."""
        return uid in self._pods or uid in self._deleted

    def __iter__(self) -> Iterator[tuple[str, OwnedPod]]:
        return iter(self._pods.items())

    def get(self, uid: str) -> OwnedPod | None:
        """Return an existing Pod of a service."""
        return self._pods.get(uid)

    def begin_list(self) -> None:
        """Start a list: all Pods are expected again."""
        self._unlisted = set(self._pods)

    def take_unlisted(self) -> set[str]:
        """Return the uids that were not put since the list started."""
        unlisted, self._unlisted = self._unlisted, set()
        return unlisted

    def keep(self, uid: str) -> None:
        """Keep a Pod as it was: it exists."""
        self._unlisted.discard(uid)

    def put(self, uid: str, found: OwnedPod | None) -> PodChange:
        """Set a Pod's current state; None where no service owns it."""
        before = self._pods.get(uid)
        self._unlisted.discard(uid)
        if found is None:
            self._pods.pop(uid, None)
        elif found != before:
            self._pods[uid] = found = self._compact(found)
        return PodChange(before, found)

    def mark_deleted(self, uid: str, last: OwnedPod | None, now_us: int) -> PodChange:
        """Mark a Pod as deleted; `last` is its last state, for one that was not known."""
        before = self._pods.pop(uid, None)
        self._deleted.pop(uid, None)  # the newest goes to the end
        self._deleted[uid] = now_us
        self._sweep(now_us)
        last = before or last
        return PodChange(before, None if last is None else mark_ended(last))

    def forget_before(self, moment_us: int) -> None:
        self.forgotten_until_us = max(self.forgotten_until_us, moment_us)

    def _sweep(self, now_us: int) -> None:
        while self._deleted:
            oldest = next(iter(self._deleted))
            if len(self._deleted) <= DELETED_PODS_MAX and self._deleted[oldest] >= now_us - DELETED_POD_KEPT_US:
                break
            self.forget_before(self._deleted.pop(oldest))

    def _compact(self, found: OwnedPod) -> OwnedPod:
        """Share strings and costs that many Pods have in common."""
        if len(self._words) > _SHARED_VALUES_MAX or len(self._costs) > _SHARED_VALUES_MAX:
            self._words.clear()
            self._costs.clear()
        return replace(
            found,
            service=self._words.setdefault(found.service, found.service),
            namespace=self._words.setdefault(found.namespace, found.namespace),
            cost=self._costs.setdefault(tuple(found.cost.items()), found.cost),
        )
