"""Backlog: admissions that the store lacks, because it was unavailable or may have lost them."""

from collections import Counter, OrderedDict
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from webhook.core.quota import Acquire, Booking, CounterPlan

DEBTS_MAX = 100_000
"""It bounds memory. Beyond it the oldest entries are dropped: they are the first to leave their windows."""

BOOKINGS_PER_CALL_MAX = 64

ServiceKey = tuple[str, str]
"""A service: its tag and its name."""


class BookingCause(StrEnum):
    """Why a Pod is booked after its admission."""

    AWAY = "Away"
    LOSS = "Loss"


class BacklogEntry(NamedTuple):
    """One Pod, or what a resize of one adds.

    `at_us` is the store's time, `counted_at_us` this replica's, at which its share counted the Pod; None if it did not.
    """

    request: Acquire
    at_us: int
    counted_at_us: int | None
    cause: BookingCause

    @property
    def is_resize(self) -> bool:
        return self.request.resize_from is not None

    @property
    def name(self) -> str:
        """Key within the service: the uid, and for a resize the new cost as well."""
        request = self.request
        return f"{request.uid} {sorted(request.cost.items())}" if self.is_resize else request.uid

    @property
    def booking(self) -> Booking:
        request = self.request
        return Booking(request.namespace, request.uid, request.cost, self.at_us, request.name, request.team)


class Backlog:
    """Entries by service and name, oldest first."""

    def __init__(self, most: int = DEBTS_MAX) -> None:
        self._most = most
        self._owed: dict[ServiceKey, OrderedDict[str, BacklogEntry]] = {}
        self._keys_of: Counter[str] = Counter()
        """Number of services with entries, by tag."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def list_keys(self) -> Collection[ServiceKey]:
        """Return the services that have entries."""
        return self._owed.keys()

    def add(self, debt: BacklogEntry) -> int:
        """Add an entry unless it is there; return how many were dropped to make room."""
        key = debt.request.plan.key
        owed = self._owed.get(key)
        if owed is None:
            owed = self._owed[key] = OrderedDict()
            self._keys_of[key[0]] += 1
        if debt.name in owed:
            return 0
        owed[debt.name] = debt
        self._count += 1
        if self._count <= self._most:
            return 0
        oldest = min(self._owed, key=lambda key: next(iter(self._owed[key].values())).at_us)
        self._take(oldest, next(iter(self._owed[oldest])))
        return 1

    def find(self, plan: CounterPlan, uid: str) -> BacklogEntry | None:
        owed = self._owed.get(plan.key)
        return None if owed is None else owed.get(uid)

    def remove(self, plan: CounterPlan, uid: str) -> BacklogEntry | None:
        """Remove and return an entry."""
        return self._take(plan.key, uid)

    def settle(self, debt: BacklogEntry) -> None:
        """Remove an entry that was booked."""
        self._take(debt.request.plan.key, debt.name)

    def list_oldest(self, key: ServiceKey) -> list[BacklogEntry]:
        """Return the entries to book next, all of one plan, cause and kind, for one call."""
        found: list[BacklogEntry] = []
        for debt in self._owed.get(key, {}).values():
            if len(found) == BOOKINGS_PER_CALL_MAX or (found and _find_batch(debt) != _find_batch(found[0])):
                break
            found.append(debt)
        return found

    def has_tag(self, tag: str) -> bool:
        return tag in self._keys_of

    def _take(self, key: ServiceKey, name: str) -> BacklogEntry | None:
        owed = self._owed.get(key)
        debt = owed.pop(name, None) if owed is not None else None
        if debt is not None:
            self._count -= 1
            if not owed:
                del self._owed[key]
                self._keys_of[key[0]] -= 1
                if not self._keys_of[key[0]]:
                    del self._keys_of[key[0]]
        return debt


def _find_batch(debt: BacklogEntry) -> tuple[int, BookingCause, bool]:
    return id(debt.request.plan), debt.cause, debt.is_resize
