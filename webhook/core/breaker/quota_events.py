"""QuotaEvents: the denials by quota that a breaker counts, in pages, so that one more costs the same at any count."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

_PAGE_MAX = 32
"""Events that are copied when one is added."""


class QuotaEvent(NamedTuple):
    at_us: int
    source: str


class _Page(NamedTuple):
    events: tuple[QuotaEvent, ...]
    oldest_us: int
    newest_us: int
    sources: frozenset[str]

    @classmethod
    def from_events(cls, events: tuple[QuotaEvent, ...]) -> "_Page":
        times_us = [event.at_us for event in events]
        return cls(events, min(times_us), max(times_us), frozenset(event.source for event in events))


class QuotaEvents(Struct, frozen=True):
    """Events in their order. Their times may go back with the clock."""

    pages: tuple[_Page, ...] = ()

    @classmethod
    def from_events(cls, events: Iterable[QuotaEvent]) -> "QuotaEvents":
        found = cls()
        for event in events:
            found = found.add(event)
        return found

    def __len__(self) -> int:
        return sum([len(page.events) for page in self.pages])

    def __iter__(self) -> Iterator[QuotaEvent]:
        return (event for page in self.pages for event in page.events)

    def has_source(self, source: str) -> bool:
        return any(source in page.sources for page in self.pages)

    def select_after(self, at_us: int) -> "QuotaEvents":
        """Return the events after a moment."""
        if all(page.oldest_us > at_us for page in self.pages):
            return self
        kept = []
        for page in self.pages:
            if page.oldest_us > at_us:
                kept.append(page)
            elif page.newest_us > at_us:
                kept.append(_Page.from_events(tuple(event for event in page.events if event.at_us > at_us)))
        return QuotaEvents(tuple(kept))

    def add(self, event: QuotaEvent) -> "QuotaEvents":
        if not self.pages or len(self.pages[-1].events) >= _PAGE_MAX:
            return QuotaEvents((*self.pages, _Page.from_events((event,))))
        return QuotaEvents((*self.pages[:-1], _Page.from_events((*self.pages[-1].events, event))))

    def drop_sources(self, sources: Collection[str]) -> "QuotaEvents":
        """Return the events of all other sources."""
        if not any(self.has_source(source) for source in sources):
            return self
        return QuotaEvents.from_events(event for event in self if event.source not in sources)


NO_EVENTS = QuotaEvents()
