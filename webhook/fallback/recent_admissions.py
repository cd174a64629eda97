"""RecentAdmissions: this replica's admissions of the last minute.

A store that fails over may lose them, and while it gives no answer the same Pods are admitted again.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from webhook.core.quota import Acquire, Cost, CounterPlan

RECENT_US = 60_000_000
RECENT_MAX = 60_000
"""A thousand Pods per second; beyond it less than the last minute is re-submitted after a loss."""

CONFIRMED_MAX = 10_000

_PAGES = 64
"""Pages for at most RECENT_MAX admissions. The oldest page is dropped as a whole."""

_Admission = tuple[Acquire, int]
"""A request, and its time by the store's clock."""
_Row = tuple[int, str, int]
"""One admission: the position of its `_Shared`, its Pod's name, and its time after the page's `base_us`."""
_Rows = dict[str, _Row | None]
"""Admissions by uid; None for one that was removed since it was admitted."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Rows).decode


class _Shared(NamedTuple):
    """Fields that the Pods of one controller have in common."""

    plan: CounterPlan
    namespace: str
    cost: Cost
    team: str


class _Page(NamedTuple):
    """Admissions, the newest at `newest_us`, with their rows encoded, which saves memory."""

    base_us: int
    newest_us: int
    shared: Sequence[_Shared]
    packed: bytes
    size: int

    @classmethod
    def from_admissions(cls, admissions: Mapping[str, _Admission | None]) -> "_Page":
        """Pack admissions by uid."""
        times_us = [admission[1] for admission in admissions.values() if admission is not None] or [0]
        base_us, shared = times_us[0], list[_Shared]()
        positions: dict[tuple[int, str, int, str], int] = {}
        rows: _Rows = dict.fromkeys(admissions)
        for request, at_us in filter(None, admissions.values()):
            # By identity: plans and costs are those of a policy and of a controller, and `admissions` keeps them.
            key = id(request.plan), request.namespace, id(request.cost), request.team
            position = positions.get(key)
            if position is None:
                position = positions[key] = len(shared)
                shared.append(_Shared(request.plan, request.namespace, request.cost, request.team))
            rows[request.uid] = position, request.name, at_us - base_us
        return cls(base_us, max(times_us), shared, _encode(rows), len(rows))

    def unpack(self, uid: str, row: _Row) -> _Admission:
        """Return an admission again; its request has no source."""
        position, name, age_us = row
        plan, namespace, cost, team = self.shared[position]
        return Acquire(plan, namespace, uid, cost, "", name=name, team=team), self.base_us + age_us


class RecentAdmissions:
    """Admissions by uid. The newest are kept as they are; a full page of them is packed at once.

    So a review only stores its admission: docs/design/start-and-memory.md.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Admission | None] = {}
        self._packed: deque[_Page] = deque()
        """Oldest first."""
        self._read: deque[_Rows] | None = None
        """The rows of `_packed`, decoded by the first question until a tick without any: an outage has many."""
        self._was_read = False
        self._count = 0
        """Admissions of packed pages."""
        self._confirmed: dict[str, tuple[Acquire, int, int]] = {}
        """Pods that had been charged before this replica admitted them, with both times; the oldest first."""
        self._swept_us = 0

    def __contains__(self, uid: str) -> bool:
        return self._find(uid) is not None

    def has_admitted(self, request: Acquire) -> bool:
        """Return whether a Pod was admitted as it is now: of the same service, at the same cost. No resize is."""
        found = self._find(request.uid) if request.resize_from is None else None
        if found is None:
            return False
        known, now = found[0], request
        return (known.plan.key, known.namespace, known.cost) == (now.plan.key, now.namespace, now.cost)

    def add(self, request: Acquire, at_us: int) -> None:
        self._open[request.uid] = request, at_us
        if len(self._open) > RECENT_MAX // _PAGES:
            self._pack()

    def confirm(self, request: Acquire, at_us: int, charged_us: int) -> None:
        """Add a Pod that is admitted now, and was charged before; `charged_us` is 0 if that time is not known.

        Its replica may have ended, or remember another time: of a call that the store carried out late.
        """
        if request.resize_from is None and not request.peek:
            self._confirmed[request.uid] = request, at_us, charged_us
            if len(self._confirmed) > CONFIRMED_MAX:
                del self._confirmed[next(iter(self._confirmed))]

    def remove(self, uid: str) -> None:
        self._confirmed.pop(uid, None)
        if not self._packed:
            self._open.pop(uid, None)
            return
        self._open[uid] = None
        if len(self._open) > RECENT_MAX // _PAGES:
            self._pack()

    def sweep(self, now_us: int) -> None:
        """Forget admissions older than a minute, by the store's time."""
        self._swept_us = now_us
        if not self._was_read:
            self._read = None
        self._was_read = False
        if self._confirmed:
            self._confirmed = {uid: found for uid, found in self._confirmed.items() if self._counts(found[1])}
        while self._packed and self._packed[0].newest_us + RECENT_US < now_us:
            self._drop_oldest()
        if not self._packed:
            self._open = {
                uid: found for uid, found in self._open.items() if found is not None and self._counts(found[1])
            }

    def list_all(self) -> Iterator[tuple[Acquire, int]]:
        """Yield the admissions with the time of their charge by the store's clock, if known; most have no source."""
        last: dict[str, _Admission | None] = {}
        for page, rows in self._list_pages():
            for uid, row in rows.items():
                last[uid] = None if row is None else page.unpack(uid, row)
        last.update(self._open)
        last.update({uid: (request, at_us) for uid, (request, _, at_us) in self._confirmed.items() if at_us})
        yield from (found for found in last.values() if found is not None and self._counts(found[1]))

    def _find(self, uid: str) -> _Admission | None:
        confirmed = self._confirmed.get(uid)
        found = self._find_charged(uid) if confirmed is None else confirmed[:2]
        return found if found is not None and self._counts(found[1]) else None

    def _find_charged(self, uid: str) -> _Admission | None:
        if uid in self._open:
            return self._open[uid]
        for page, rows in reversed(self._list_pages()):
            if uid in rows:
                row = rows[uid]
                return None if row is None else page.unpack(uid, row)
        return None

    def _counts(self, at_us: int) -> bool:
        return at_us + RECENT_US >= self._swept_us

    def _pack(self) -> None:
        """Pack the newest admissions as a page, and drop the oldest ones if there is no room for another page."""
        page = _Page.from_admissions(self._open)
        self._open = {}
        if self._read is not None:
            self._read.append(_decode(page.packed))
        self._packed.append(page)
        self._count += page.size
        while self._count > RECENT_MAX - RECENT_MAX // _PAGES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._count -= self._packed.popleft().size
        if self._read is not None:
            self._read.popleft()

    def _list_pages(self) -> Sequence[tuple[_Page, _Rows]]:
        """Return the packed pages with their rows, the oldest first."""
        self._was_read = True
        if self._read is None:
            self._read = deque(_decode(page.packed) for page in self._packed)
        return [*zip(self._packed, self._read, strict=True)]
