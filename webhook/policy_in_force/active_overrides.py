"""Active overrides: loaded from a document, ended automatically; an invalid document changes nothing.

A state of the overrides becomes active only after policies have been compiled for it. The state that follows the next
end of an entry is prepared when the one before it becomes active, so an end takes effect at its microsecond. If a
further end comes before that preparation is complete, reviews use the last prepared state until it is, like those of a
replica whose clock is that much behind. They neither wait nor compile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest

from webhook.core.document import DocumentError
from webhook.core.overrides import LiveOverrides
from webhook.core.overrides.loading import OverridesDocument, OverridesState, load
from webhook.ports import Clock, Observer

_CHECK_SECONDS = 1.0


class NoOverrides:
    """A `ports.Overrides` without entries."""

    _NONE = LiveOverrides()

    def get_current(self) -> LiveOverrides:
        return self._NONE

    def list_prepared(self) -> tuple[LiveOverrides, ...]:
        return (self._NONE,)


class ActiveOverrides:
    """A `ports.Overrides` and `ports.DocumentReceiver`. `source` names the document; "" without one."""

    def __init__(self, observer: Observer, clock: Clock, source: str = "") -> None:
        self.source = source
        self.prepare: Callable[[Sequence[LiveOverrides]], Awaitable[None]] = _prepare_nothing
        """Compiles policies for live entries before these become active."""
        self._observer = observer
        self._clock = clock
        self._state = OverridesState()
        self._next: OverridesState | None = None
        """The prepared state after the next end; None if nothing ends, or if it is not prepared yet."""
        self._place = ""
        self._raw: bytes | None = None
        self._errors: tuple[str, ...] = ()
        self._changing = asyncio.Lock()

    def get_current(self) -> LiveOverrides:
        ends_us = self._state.ends_us
        if self._next is not None and ends_us is not None and self._clock.now_us() >= ends_us:
            self._enter(self._next)
        return self._state.live

    def list_prepared(self) -> tuple[LiveOverrides, ...]:
        live = self._state.live
        return (live,) if self._next is None else (live, self._next.live)

    def list_errors(self) -> tuple[str, ...]:
        """Return the problems of the newest document; empty if it is in force."""
        return self._errors

    async def run(self) -> None:
        """End entries even without reviews, and prepare the next states, until cancelled."""
        while True:
            await self.look_ahead()
            await asyncio.sleep(self._compute_rest_seconds())

    async def look_ahead(self) -> None:
        """Prepare the state after the next end, and enter it if the end has passed."""
        async with self._changing:
            self.get_current()
            if self._next is None and (coming := self._find_next(self._state)) is not None:
                await self.prepare((coming.live,))
                self._next = coming
        self.get_current()

    async def on_document(self, raw: bytes, place: str) -> bool:
        """Check and load a document; b"" means that there is none. Return whether the newest document is valid."""
        async with self._changing:
            if raw == self._raw:
                return not self._errors
            try:
                # In a thread: a long document would delay reviews.
                document = await asyncio.to_thread(load, raw)
            except DocumentError as error:
                await self._refuse([f"{place}:{problem}" for problem in error.problems])
            else:
                self._place = place
                await self._take(document)
            self._raw = raw
            return not self._errors

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        """Report that the document cannot be read: live entries stay until their ends."""
        async with self._changing:
            self._raw = None
            await self._refuse(errors)

    async def _refuse(self, errors: Sequence[str]) -> None:
        await self._take(None)
        self._report(tuple(errors))

    async def _take(self, newest: OverridesDocument | None) -> None:
        """Enter the state with the newest document, None if it is invalid, once it and the next are prepared."""
        while True:
            former = self._state
            state = former.replace_newest(newest, self._clock.now_us())
            coming = self._find_next(state)
            await self.prepare((state.live,) if coming is None else (state.live, coming.live))
            if self._state is former:  # otherwise an entry has ended meanwhile
                break
        self._enter(state)
        self._next = coming
        self.get_current()

    def _find_next(self, state: OverridesState) -> OverridesState | None:
        """Return the state after the next end; if more ends have passed, the state now."""
        return None if state.ends_us is None else state.advance(max(state.ends_us, self._clock.now_us()))

    def _compute_rest_seconds(self) -> float:
        """Return how long to sleep: until the next end, and at most a second, because the clock may be set."""
        ends_us = self._state.ends_us
        return _CHECK_SECONDS if ends_us is None else min(_CHECK_SECONDS, max(0, ends_us - self._clock.now_us()) / 1e6)

    def _report(self, errors: tuple[str, ...]) -> None:
        if errors != self._errors:
            self._errors = errors
            self._observer.on_overrides_failed(errors)

    def _enter(self, state: OverridesState) -> None:
        """Make a prepared state the active one, and report the difference."""
        before, self._state, self._next = self._state, state, None
        former, live = before.live.entries, state.live.entries
        if state.clashes:
            self._report(tuple(f"{self._place}:{problem}" for problem in state.clashes))
        if state.document is not before.document:
            self._errors = ()
            self._observer.on_overrides_loaded(state.live.list_all())
        for service in sorted({*former, *live}):
            old_entries, new_entries = former.get(service, ()), live.get(service, ())
            ended = [entry for entry in old_entries if entry not in new_entries]
            begun = [entry for entry in new_entries if entry not in old_entries]
            for old, new in zip_longest(ended, begun):
                self._observer.on_override_changed(service, old, new)


async def _prepare_nothing(_: Sequence[LiveOverrides]) -> None:
    """Prepare nothing: no policy is compiled for these overrides."""
