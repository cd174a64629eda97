"""RecentAdmissions: this replica's admissions of the last minute, which a store that fails over may lose."""

from collections import deque
from collections.abc import Iterator
from sys import intern
from typing import NamedTuple

import msgspec
from msgspec import Struct

from webhook.core.quota import Acquire, Cost, CounterPlan

RECENT_US = 60_000_000
RECENT_MAX = 60_000
"""A thousand Pods per second; beyond it less than the last minute is re-submitted after a loss."""

_PAGES = 64
"""Of at most RECENT_MAX admissions. The oldest page is dropped as a whole."""

_UUID_LENGTH = 36
_Row = tuple[bytes | str, str, int, int]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class _Recent(Struct, frozen=True, gc=False):
    """What a booking needs of an admission."""

    plan: CounterPlan
    namespace: str
    cost: Cost
    name: str
    at_us: int


_Page = dict[str, _Recent | None]
"""Admissions by uid; None for one that was removed since it was admitted."""


class _Shared(NamedTuple):
    """What the Pods of one controller share."""

    plan: CounterPlan
    namespace: str
    cost: Cost


class _PackedPage(NamedTuple):
    """A page in a sixth of its memory: with 60,000 admissions, a server had 16 MB more.

    `rows` is a MessagePack list of (uid, name, age at `newest_us`, position in `shared`); that of a removed one is -1.
    """

    size: int
    newest_us: int
    rows: bytes
    shared: tuple[_Shared, ...]

    @classmethod
    def of(cls, page: _Page, newest_us: int) -> "_PackedPage":
        positions: dict[tuple[int, str, int], int] = {}
        shared: list[_Shared] = []
        rows: list[_Row] = []
        for uid, one in page.items():
            if one is None:
                rows.append((_short(uid), "", 0, -1))
                continue
            position = positions.setdefault((id(one.plan), one.namespace, id(one.cost)), len(shared))
            if position == len(shared):
                shared.append(_Shared(one.plan, one.namespace, one.cost))
            rows.append((_short(uid), one.name, newest_us - one.at_us, position))
        return cls(len(rows), newest_us, _encode(rows), tuple(shared))

    def unpacked(self) -> _Page:
        page: _Page = {}
        for uid, name, age_us, position in _decode(self.rows):
            if position < 0:
                page[_long(uid)] = None
            else:
                plan, namespace, cost = self.shared[position]
                page[_long(uid)] = _Recent(plan, namespace, cost, name, self.newest_us - age_us)
        return page


def _short(uid: str) -> bytes | str:
    """Return the 16 bytes of a UUID as Kubernetes writes it; any other uid as it is."""
    if len(uid) != _UUID_LENGTH or uid[8:24:5] != "----":
        return uid
    digits = uid.replace("-", "")
    try:
        short = bytes.fromhex(digits)
    except ValueError:
        return uid
    return short if short.hex() == digits else uid


def _long(uid: bytes | str) -> str:
    if isinstance(uid, str):
        return uid
    digits = uid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class RecentAdmissions:
    """Admissions by uid, in pages: the newest page is open, earlier ones are packed until somebody looks into them."""

    def __init__(self) -> None:
        self._open: _Page = {}
        self._newest_us = 0
        """Time of the newest admission of the open page."""
        self._packed: deque[_PackedPage] = deque()
        """Oldest first."""
        self._read: deque[_Page] | None = None
        """The pages of `_packed`, unpacked by the first question until a tick without any: an outage has many."""
        self._was_read = False
        self._count = 0
        self._swept_us = 0

    def __contains__(self, uid: str) -> bool:
        for page in (self._open, *reversed(self._pages())):
            if uid in page:
                one = page[uid]
                return one is not None and self._counts(one)
        return False

    def add(self, request: Acquire, at_us: int) -> None:
        recent = _Recent(request.plan, intern(request.namespace), request.cost, request.name, at_us)
        self._newest_us = max(self._newest_us, at_us)
        self._put(request.uid, recent)

    def remove(self, uid: str) -> None:
        if self._count:
            self._put(uid, None)

    def sweep(self, now_us: int) -> None:
        """Forget admissions older than a minute, by the store's time."""
        self._swept_us = now_us
        if not self._was_read:
            self._read = None
        self._was_read = False
        while self._packed and self._packed[0].newest_us + RECENT_US < now_us:
            self._drop_oldest()
        if not self._packed and self._newest_us + RECENT_US < now_us:
            self._open, self._count = {}, 0

    def all(self) -> Iterator[tuple[Acquire, int]]:
        """Yield the admissions, as requests without a source, with their time by the store's clock."""
        last: _Page = {}
        for page in (*self._pages(), self._open):
            last.update(page)
        for uid, one in last.items():
            if one is not None and self._counts(one):
                yield Acquire(one.plan, one.namespace, uid, one.cost, "", name=one.name), one.at_us

    def _counts(self, one: _Recent) -> bool:
        return one.at_us + RECENT_US >= self._swept_us

    def _put(self, uid: str, one: _Recent | None) -> None:
        self._count += uid not in self._open
        self._open[uid] = one
        if len(self._open) > RECENT_MAX // _PAGES:
            self._packed.append(_PackedPage.of(self._open, self._newest_us))
            if self._read is not None:
                self._read.append(self._open)
            self._open, self._newest_us = {}, 0
        while self._count > RECENT_MAX and self._packed:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._count -= self._packed.popleft().size
        if self._read is not None:
            self._read.popleft()

    def _pages(self) -> deque[_Page]:
        self._was_read = True
        if self._read is None:
            self._read = deque(packed.unpacked() for packed in self._packed)
        return self._read
