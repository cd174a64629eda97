"""Backlog: admissions that the store lacks, because it was unavailable or may have lost them."""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator
from enum import StrEnum
from sys import intern
from typing import NamedTuple

from msgspec import Struct

from webhook.core.quota import Acquire, Booking, Cost, CounterPlan

DEBTS_MAX = 100_000
"""About 50 MB. Beyond it the oldest entries are dropped: they are the first to leave their windows."""

RECENT_US = 60_000_000
RECENT_MAX = 60_000
"""A thousand Pods per second; beyond it less than the last minute is re-submitted after a loss."""

BOOKED_AT_ONCE = 64

ServiceKey = tuple[str, str]
"""A service: its tag and its name."""


class BookingCause(StrEnum):
    """Why a Pod is booked after its admission."""

    AWAY = "Away"
    LOSS = "Loss"


class BacklogEntry(NamedTuple):
    """One Pod, or what a resize of one adds.

    `at_us` is the store's time, `counted_at_us` this replica's, at which its share counted the Pod.
    """

    request: Acquire
    at_us: int
    counted_at_us: int
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
        return Booking(request.namespace, request.uid, request.cost, self.at_us, request.name)


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

    def keys(self) -> Collection[ServiceKey]:
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

    def oldest(self, key: ServiceKey) -> list[BacklogEntry]:
        """Return what to book next: entries of one plan, cause and kind, for one call."""
        found: list[BacklogEntry] = []
        for debt in self._owed.get(key, {}).values():
            if len(found) == BOOKED_AT_ONCE or (found and _batch_of(debt) != _batch_of(found[0])):
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


def _batch_of(debt: BacklogEntry) -> tuple[int, BookingCause, bool]:
    return id(debt.request.plan), debt.cause, debt.is_resize


class _Recent(Struct, frozen=True, gc=False):
    """What a booking needs of an admission: half the memory of its request, and no collection of garbage scans it."""

    plan: CounterPlan
    namespace: str
    cost: Cost
    name: str
    at_us: int


class RecentAdmissions:
    """This replica's admissions of the last minute, by uid: a store that fails over may lose them."""

    def __init__(self) -> None:
        self._admitted: dict[str, _Recent] = {}
        self._order: deque[str] = deque()
        """Uids in the order of admission; some may have been removed."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._admitted

    def add(self, request: Acquire, at_us: int) -> None:
        if request.uid not in self._admitted:
            self._order.append(request.uid)
        namespace = intern(request.namespace)
        self._admitted[request.uid] = _Recent(request.plan, namespace, request.cost, request.name, at_us)
        if len(self._order) > RECENT_MAX:
            self._admitted.pop(self._order.popleft(), None)

    def remove(self, uid: str) -> None:
        self._admitted.pop(uid, None)

    def sweep(self, now_us: int) -> None:
        """Forget admissions older than a minute, by the store's time."""
        while self._order:
            oldest = self._admitted.get(self._order[0])
            if oldest is not None and oldest.at_us + RECENT_US >= now_us:
                return
            self._admitted.pop(self._order.popleft(), None)

    def all(self) -> Iterator[tuple[Acquire, int]]:
        """Yield the admissions, as requests without a source, with their time by the store's clock."""
        for uid, one in self._admitted.items():
            yield Acquire(one.plan, one.namespace, uid, one.cost, "", name=one.name), one.at_us
