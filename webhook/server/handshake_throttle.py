"""Whose TLS handshake comes next, and when: those that come to nothing may not take the only thread from the others."""

from collections.abc import Callable
from typing import Generic, TypeVar

from webhook.support.lru_cache import Lately

_AT_ONCE = 64
_A_SECOND = 250
"""A handshake takes about 1 ms of the only thread: of those that come to nothing, a quarter of it is enough."""
_STRANGERS_MAX = 256
"""As many as have their turn within about a second; an API server whose first calls all come at once fits in."""
_ADDRESSES_KEPT = 64
_STRANGERS_PART = 4
"""One turn in so many is a stranger's, whoever else waits."""

_T = TypeVar("_T")


class HandshakeThrottle(Generic[_T]):
    """Keeps newcomers in line. A turn costs a credit; time brings it back, and so does a newcomer that was worth it.

    Who comes from an address of which one was worth it lately goes before strangers, and is never sent away: when
    certificates change, all connections of a good caller begin anew. Of too many strangers the oldest makes room.
    """

    def __init__(self, clock_seconds: Callable[[], float]) -> None:
        self._clock_seconds = clock_seconds
        self._credit = float(_AT_ONCE)
        self._credited_at_seconds = clock_seconds()
        self._turns = 0
        self._good_addresses: Lately[str, bool] = Lately(_ADDRESSES_KEPT)
        self._known: dict[_T, None] = {}
        self._strangers: dict[_T, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._known) + len(self._strangers)

    def come(self, newcomer: _T, address: str) -> _T | None:
        """Put a newcomer in line; return whoever must go for it."""
        if self._good_addresses.get(address) is not None:
            self._known[newcomer] = None
            return None
        displaced = self.first_stranger() if len(self._strangers) >= _STRANGERS_MAX else None
        if displaced is not None:
            self.leave(displaced)
        self._strangers[newcomer] = None
        return displaced

    def first_stranger(self) -> _T | None:
        """Return the stranger that has been in line for longest; None where none is."""
        return next(iter(self._strangers), None)

    def is_good(self, address: str) -> bool:
        """Return whether one from this address was worth its handshake lately."""
        return address in self._good_addresses

    def leave(self, newcomer: _T) -> None:
        """Take it out of the line, if it is in it."""
        self._known.pop(newcomer, None)
        self._strangers.pop(newcomer, None)

    def take(self) -> _T | None:
        """Return whose turn it is, no longer in line; None where nobody waits, or there is no credit."""
        if not self.waiting or self._credits() < 1:
            return None
        self._turns += 1
        is_strangers_turn = not self._known or self._turns % _STRANGERS_PART == 0
        first = next(iter((is_strangers_turn and self._strangers) or self._known))
        self.leave(first)
        self._credit -= 1
        return first

    def seconds_to_wait(self) -> float | None:
        """Return in how long there is a credit for whoever is first in line; None where nobody waits."""
        return max(0.0, (1 - self._credits()) / _A_SECOND) if self.waiting else None

    def worth(self, address: str) -> None:
        """Take note that one from this address was worth its handshake."""
        self._good_addresses.keep(address, True)  # noqa: FBT003  what is kept, not an option
        self._credit += 1

    def _credits(self) -> float:
        now_seconds = self._clock_seconds()
        gained = (now_seconds - self._credited_at_seconds) * _A_SECOND
        self._credit = min(self._credit + gained, _AT_ONCE)
        self._credited_at_seconds = now_seconds
        return self._credit
