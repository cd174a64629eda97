"""Bounded caches: an LRU cache, and a cache that creates missing entries."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class LruCache(Generic[_K, _V]):
    """Dictionary of at most `entries_max` entries; a new one replaces the least recently used."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._kept: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """Return the value and mark it as the most recently used; None if there is none."""
        value = self._kept.pop(key, None)
        if value is not None:
            self._kept[key] = value
        return value

    def peek(self, key: _K) -> _V | None:
        """Return the value without marking it as used, which hashes the key only once."""
        return self._kept.get(key)

    def keep(self, key: _K, value: _V) -> bool:
        """Add or replace an entry; return whether another entry was evicted for it."""
        evicts = len(self._kept) >= self._entries_max and key not in self._kept
        if evicts:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = value
        return evicts

    def forget(self, key: _K) -> None:
        """Remove an entry, if it is there."""
        self._kept.pop(key, None)

    def __contains__(self, key: _K) -> bool:
        """Return whether `key` is cached, without marking it as used."""
        return key in self._kept

    def clear(self) -> None:
        self._kept.clear()

    def values(self) -> Iterable[_V]:
        return self._kept.values()

    def items(self) -> Iterable[tuple[_K, _V]]:
        """Return keys and values, the least recently used first."""
        return self._kept.items()

    def __len__(self) -> int:
        return len(self._kept)


class SelfFillingCache(dict[_K, _V]):
    """Dictionary of at most `entries_max` entries that creates missing ones; a new entry replaces the oldest.

    A lookup is a plain dictionary lookup; an entry that was replaced is created again at its next use.
    """

    def __init__(self, entries_max: int, make: Callable[[_K], _V]) -> None:
        super().__init__()
        self._entries_max = entries_max
        self._make = make

    def __missing__(self, key: _K) -> _V:
        if len(self) >= self._entries_max:
            del self[next(iter(self))]
        value = self[key] = self._make(key)
        return value
