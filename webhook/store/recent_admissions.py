"""RecentAdmissions: this replica's admissions of the last minute, which a store that fails over may lose."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from webhook.core.quota import Acquire, Cost, CounterPlan

RECENT_US = 60_000_000
RECENT_MAX = 60_000
"""A thousand Pods per second; beyond it less than the last minute is re-submitted after a loss."""

_PAGES = 64
"""Of at most RECENT_MAX admissions. The oldest page is dropped as a whole."""

_Row = tuple[int, str, int]
"""Of one admission: the position of its `_Shared`, its Pod's name, and its time after the page's `base_us`."""
_Rows = dict[str, _Row | None]
"""Admissions by uid; None for one that was removed since it was admitted."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rows).decode


class _Shared(NamedTuple):
    """What the Pods of one controller share."""

    plan: CounterPlan
    namespace: str
    cost: Cost


class _Page:
    """Admissions, the newest at `newest_us`. A full page is packed: as objects, 60,000 admissions take 16 MB."""

    __slots__ = ("_packed", "_positions", "_rows", "base_us", "newest_us", "shared", "size")

    def __init__(self, base_us: int = 0) -> None:
        self.base_us = self.newest_us = base_us
        self.shared: list[_Shared] = []
        self.size = 0
        self._positions: dict[tuple[int, str, int], int] = {}
        self._rows: _Rows = {}
        self._packed = b""

    def put(self, request: Acquire, at_us: int) -> None:
        # By identity: plans and costs are those of a policy and of a controller, and `shared` keeps them.
        key = id(request.plan), request.namespace, id(request.cost)
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = len(self.shared)
            self.shared.append(_Shared(request.plan, request.namespace, request.cost))
        self.newest_us = max(self.newest_us, at_us)
        self._rows[request.uid] = position, request.name, at_us - self.base_us
        self.size = len(self._rows)

    def remove(self, uid: str) -> None:
        self._rows[uid] = None
        self.size = len(self._rows)

    def pack(self) -> None:
        """Keep the admissions encoded. None is added any more."""
        self._packed, self._rows, self._positions = _encode(self._rows), {}, {}

    def rows(self) -> _Rows:
        return _decode(self._packed) if self._packed else self._rows


class RecentAdmissions:
    """Admissions by uid, in pages: the newest page is open, earlier ones are packed until somebody looks into them."""

    def __init__(self) -> None:
        self._open = _Page()
        self._packed: deque[_Page] = deque()
        """Oldest first."""
        self._read: deque[_Rows] | None = None
        """The rows of `_packed`, decoded by the first question until a tick without any: an outage has many."""
        self._was_read = False
        self._count = 0
        """Admissions of packed pages."""
        self._swept_us = 0

    def __contains__(self, uid: str) -> bool:
        for page, rows in reversed(self._pages()):
            if uid in rows:
                row = rows[uid]
                return row is not None and self._counts(page.base_us + row[2])
        return False

    def add(self, request: Acquire, at_us: int) -> None:
        if not self._open.size:
            self._open = _Page(at_us)
        self._open.put(request, at_us)
        self._bound()

    def remove(self, uid: str) -> None:
        if self._count or self._open.size:
            self._open.remove(uid)
            self._bound()

    def sweep(self, now_us: int) -> None:
        """Forget admissions older than a minute, by the store's time."""
        self._swept_us = now_us
        if not self._was_read:
            self._read = None
        self._was_read = False
        while self._packed and self._packed[0].newest_us + RECENT_US < now_us:
            self._drop_oldest()
        if not self._packed and self._open.newest_us + RECENT_US < now_us:
            self._open = _Page()

    def all(self) -> Iterator[tuple[Acquire, int]]:
        """Yield the admissions, as requests without a source, with their time by the store's clock."""
        last: dict[str, tuple[Acquire, int] | None] = {}
        for page, rows in self._pages():
            for uid, row in rows.items():
                if row is None:
                    last[uid] = None
                    continue
                position, name, age_us = row
                plan, namespace, cost = page.shared[position]
                last[uid] = Acquire(plan, namespace, uid, cost, "", name=name), page.base_us + age_us
        yield from (one for one in last.values() if one is not None and self._counts(one[1]))

    def _counts(self, at_us: int) -> bool:
        return at_us + RECENT_US >= self._swept_us

    def _bound(self) -> None:
        if self._open.size > RECENT_MAX // _PAGES:
            if self._read is not None:
                self._read.append(self._open.rows())
            self._open.pack()
            self._packed.append(self._open)
            self._count += self._open.size
            self._open = _Page()
        while self._count + self._open.size > RECENT_MAX and self._packed:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._count -= self._packed.popleft().size
        if self._read is not None:
            self._read.popleft()

    def _pages(self) -> Sequence[tuple[_Page, _Rows]]:
        """Return all pages with their rows, the oldest first."""
        self._was_read = True
        if self._read is None:
            self._read = deque(page.rows() for page in self._packed)
        return [*zip(self._packed, self._read, strict=True), (self._open, self._open.rows())]
