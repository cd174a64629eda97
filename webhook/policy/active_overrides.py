"""Active overrides: loaded from a document, ended automatically; an invalid document changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest

from webhook.core.document import DocumentError
from webhook.core.overrides import LiveOverrides, Override
from webhook.core.overrides_document import OverridesDocument, load
from webhook.ports import Clock, Observer

_CHECK_SECONDS = 1.0
_NEVER_US = 1 << 63


class NoOverrides:
    """A `ports.Overrides` without entries."""

    _NONE = LiveOverrides()

    def current(self) -> LiveOverrides:
        return self._NONE


class ActiveOverrides:
    """A `ports.Overrides` and `ports.DocumentReceiver`. `source` names the place of the document, "" for none."""

    def __init__(self, observer: Observer, clock: Clock, source: str = "") -> None:
        self.source = source
        self.prepare: Callable[[Mapping[str, tuple[Override, ...]]], Awaitable[None]] | None = None
        """Compiles the services that new entries change, before the entries take effect."""
        self._observer = observer
        self._clock = clock
        self._in_force = LiveOverrides()
        self._good = OverridesDocument()
        self._newest: OverridesDocument | None = None
        """A newer document that cannot be used yet: two of its entries conflict until one of them ends."""
        self._place = ""
        self._raw: bytes | None = None
        self._errors: tuple[str, ...] = ()
        self._change_at_us = _NEVER_US
        self._reading = asyncio.Lock()

    def current(self) -> LiveOverrides:
        if self._clock.now_us() >= self._change_at_us:
            self._settle()
        return self._in_force

    def last_errors(self) -> tuple[str, ...]:
        """Return the problems of the newest document; empty if it is in force."""
        return self._errors

    async def run(self) -> None:
        """End entries even without reviews, until cancelled."""
        while True:
            self.current()
            await asyncio.sleep(_CHECK_SECONDS)

    async def on_document(self, raw: bytes, place: str) -> bool:
        """Check and load a document; b"" means that there is none. Return whether the newest document is valid."""
        async with self._reading:
            if raw == self._raw:
                return not self._errors
            try:
                # In a thread: a long document takes a fraction of a second.
                document = await asyncio.to_thread(load, raw)
            except DocumentError as error:
                self._refuse([f"{place}:{problem}" for problem in error.problems])
            else:
                now_us = self._clock.now_us()
                if self.prepare is not None and not document.clashes(now_us):
                    await self.prepare(document.live(now_us))
                self._newest, self._place = document, place
                self._settle()
            self._raw = raw
            return not self._errors

    def on_unreadable(self, errors: Sequence[str]) -> None:
        """Report that the document cannot be read: live entries stay until their ends."""
        self._raw = None
        self._refuse(errors)

    def _refuse(self, errors: Sequence[str]) -> None:
        self._newest = None
        self._report(tuple(errors))
        self._settle()

    def _report(self, errors: tuple[str, ...]) -> None:
        if errors != self._errors:
            self._errors = errors
            self._observer.overrides_failed(errors)

    def _settle(self) -> None:
        """Swap in the entries that are live now."""
        now_us = self._clock.now_us()
        newest = self._newest
        is_taken = False
        if newest is not None:
            clashes = newest.clashes(now_us)
            if clashes:
                self._report(tuple(f"{self._place}:{problem}" for problem in clashes))
            else:
                self._good, self._newest, self._errors, is_taken = newest, None, (), True
        live = self._good.live(now_us)
        ends = [document.next_end_us(now_us) for document in (self._good, newest) if document is not None]
        self._change_at_us = min((end for end in ends if end is not None), default=_NEVER_US)
        former = self._in_force.entries
        if live != former:
            self._in_force = LiveOverrides(self._in_force.generation + 1, live)
        if is_taken:
            self._observer.overrides_loaded(self._in_force.all())
        for service in sorted({*former, *live}):
            before, after = former.get(service, ()), live.get(service, ())
            ended = [entry for entry in before if entry not in after]
            begun = [entry for entry in after if entry not in before]
            for old, new in zip_longest(ended, begun):
                self._observer.override_changed(service, old, new)
