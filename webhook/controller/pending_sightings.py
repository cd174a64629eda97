"""What the store has not been told yet: the newest state of each Pod, by service; never a queue of events."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from webhook.core.pods.ownership import Owned

MOST = 100_000
"""Beyond it the oldest is dropped: what is there is told again in time, what has gone is not."""


class PendingSighting(NamedTuple):
    """A Pod's newest state. `version` is what the watch had reached, and `turn` how much had been noted, at its first.

    A watch that goes on from that version brings the Pod again.
    """

    found: Owned
    version: int
    turn: int


class PendingSightings:
    """For one service at a time a batch may travel: what changes meanwhile waits for the next."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, PendingSighting]] = {}
        self._travelling: dict[str, dict[str, PendingSighting]] = {}
        self._turn = 0
        self._count = 0
        self.noted = asyncio.Event()
        """Set whenever anything is."""

    def __contains__(self, uid: str) -> bool:
        return any(uid in items for items in (*self._waiting.values(), *self._travelling.values()))

    def holds(self, service: str, uid: str) -> bool:
        return uid in self._waiting.get(service, ()) or uid in self._travelling.get(service, ())

    def uids(self, service: str) -> list[str]:
        return [*self._waiting.get(service, ()), *self._travelling.get(service, ())]

    @property
    def services(self) -> list[str]:
        """Those for which something waits, and nothing travels."""
        return [service for service, items in self._waiting.items() if items and not self._travelling.get(service)]

    @property
    def turn(self) -> int:
        """How much has been noted so far."""
        return self._turn

    def note(self, service: str, uid: str, found: Owned, version: int) -> bool:
        """Take a Pod's newest state; False where another had to be dropped for it."""
        items = self._waiting.setdefault(service, {})
        before = items.get(uid)
        self._turn += 1
        self.noted.set()
        if before is not None:
            items[uid] = before._replace(found=found)
            return True
        items[uid] = PendingSighting(found, version, self._turn)
        self._count += 1
        if self._count <= MOST:
            return True
        longest = max(self._waiting.values(), key=len)
        del longest[next(iter(longest))]
        self._count -= 1
        return False

    def take(self, service: str, most: int) -> dict[str, PendingSighting]:
        """Return what is told next; it travels until `told` or `failed`."""
        items = self._waiting.get(service, {})
        batch = dict(islice(items.items(), most))
        for uid in batch:
            del items[uid]
        self._travelling[service] = batch
        return batch

    def told(self, service: str) -> None:
        self._count -= len(self._travelling.pop(service, ()))
        if not self._waiting.get(service):
            self._waiting.pop(service, None)

    def failed(self, service: str) -> None:
        """Let what travelled wait again, unless it has changed meanwhile."""
        items = self._waiting.setdefault(service, {})
        for uid, item in self._travelling.pop(service, {}).items():
            newer = items.get(uid)
            self._count -= newer is not None
            items[uid] = item if newer is None else item._replace(found=newer.found)

    def drop(self, service: str) -> None:
        """Forget what waits for a service that there is no more."""
        self._count -= len(self._waiting.pop(service, ()))

    def told_up_to(self, version: int) -> int:
        """Return the version from which whoever watches next misses nothing; `version` is what has been reached."""
        return min((item.version for item in self._items()), default=version)

    def is_told(self, turn: int, service: str) -> bool:
        """Say whether all of a service has been told that was noted up to a turn."""
        return all(item.turn > turn for item in self._items(service))

    def _items(self, service: str | None = None) -> Iterator[PendingSighting]:
        for items in (self._waiting, self._travelling):
            for name, by_uid in items.items():
                if service in {None, name}:
                    yield from by_uid.values()
