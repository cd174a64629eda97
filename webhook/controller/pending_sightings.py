"""Pending sightings: the newest state of each Pod that the store has not received, by service."""

import asyncio
from itertools import islice
from typing import NamedTuple

from webhook.core.pods.ownership import OwnedPod

SIGHTINGS_MAX = 100_000
"""Beyond this number the oldest is dropped: a Pod that exists is sent again later, a deleted one is not."""


class PendingSighting(NamedTuple):
    """A Pod's newest state. `version` and `turn` are those of the watch and of the queue when the Pod was first added.

    A watch that resumes from that version delivers the Pod again.
    """

    found: OwnedPod
    version: int
    turn: int


class PendingSightings:
    """A queue for each service, with one batch in flight at a time; later changes wait for the next batch."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, PendingSighting]] = {}
        self._in_flight: dict[str, dict[str, PendingSighting]] = {}
        self._turn = 0
        self._count = 0
        self.added = asyncio.Event()
        """Set when anything is added."""

    def __contains__(self, uid: str) -> bool:
        return any(uid in items for items in (*self._waiting.values(), *self._in_flight.values()))

    def holds(self, service: str, uid: str) -> bool:
        return uid in self._waiting.get(service, ()) or uid in self._in_flight.get(service, ())

    def list_uids(self, service: str) -> list[str]:
        return [*self._waiting.get(service, ()), *self._in_flight.get(service, ())]

    @property
    def services(self) -> list[str]:
        """Services with waiting Pods and no batch in flight."""
        return [service for service, items in self._waiting.items() if items and not self._in_flight.get(service)]

    @property
    def turn(self) -> int:
        """Number of additions so far."""
        return self._turn

    def put(self, service: str, uid: str, found: OwnedPod, version: int) -> bool:
        """Set a Pod's newest state; False if another Pod was dropped for it."""
        items = self._waiting.setdefault(service, {})
        before = items.get(uid)
        self._turn += 1
        self.added.set()
        if before is not None:
            items[uid] = before._replace(found=found)
            return True
        items[uid] = PendingSighting(found, version, self._turn)
        self._count += 1
        if self._count <= SIGHTINGS_MAX:
            return True
        longest = max(self._waiting.values(), key=len)
        del longest[next(iter(longest))]
        self._count -= 1
        return False

    def take(self, service: str, most: int) -> dict[str, PendingSighting]:
        """Return the next batch; it is in flight until `acknowledge` or `requeue`."""
        items = self._waiting.get(service, {})
        batch = dict(islice(items.items(), most))
        for uid in batch:
            del items[uid]
        self._in_flight[service] = batch
        return batch

    def acknowledge(self, service: str) -> None:
        self._count -= len(self._in_flight.pop(service, ()))
        if not self._waiting.get(service):
            self._waiting.pop(service, None)

    def requeue(self, service: str) -> None:
        """Return the batch in flight to the queue; newer states of its Pods win."""
        items = self._waiting.setdefault(service, {})
        for uid, item in self._in_flight.pop(service, {}).items():
            newer = items.get(uid)
            self._count -= newer is not None
            items[uid] = item if newer is None else item._replace(found=newer.found)

    def drop(self, service: str) -> None:
        """Remove what waits for a service that the policy no longer has."""
        self._count -= len(self._waiting.pop(service, ()))

    def resume_version(self, version: int) -> int:
        """Return the version from which another watch misses nothing; `version` is what this watch has reached."""
        every = (*self._waiting.values(), *self._in_flight.values())
        return min((item.version for items in every for item in items.values()), default=version)

    def is_sent(self, turn: int, service: str) -> bool:
        """Return whether all that was added for a service up to a turn has been sent."""
        of_service = self._waiting.get(service, {}), self._in_flight.get(service, {})
        return all(item.turn > turn for items in of_service for item in items.values())
