"""Assembler of the policy's parts: between the sources of root and parts and the receiver of the whole document.

A root without parts is passed on as it is. A part with problems is left out alone: its former services stay.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from webhook.core.document import Purpose
from webhook.core.document.assembly import AssemblyRequest
from webhook.core.document.configmap import KEY, NAMESPACE, PART_PREFIX
from webhook.errors import CheckFailedError
from webhook.ports import DocumentReceiver, Observer, PolicyCheck

_MAY_DECLARE_PARTS = re.compile(rb"(?:^|^\{|,)[\"' ]*parts[\"']?\s*:", re.MULTILINE)
"""Found in every root that declares parts; a root where it is found may declare none."""


_UNSIGNED = (
    "with --policy-keys the policy is one signed document, and parts have no signature: write all services into it, "
    "or leave out --policy-keys"
)


class PartsAssembler:
    """A `ports.DocumentReceiver` of the root, and the receiver of the parts."""

    def __init__(
        self,
        receiver: DocumentReceiver,
        check: PolicyCheck,
        observer: Observer,
        purpose: Purpose = Purpose.SERVE,
        *,
        is_signed: bool = False,
    ) -> None:
        """Create it. `is_signed`: documents need signatures, which an assembled one does not have."""
        self.read_former: Callable[[], Awaitable[bytes | None]] = _read_nothing
        """Reads the last good document, for the services of parts that are invalid when the process starts."""
        self.are_wanted = asyncio.Event()
        """Set while the root declares parts."""
        self.root = b""
        """The newest text of the root."""
        self._receiver = receiver
        self._check = check
        self._observer = observer
        self._purpose = purpose
        self._is_signed = is_signed
        self._place = ""
        self._texts: Mapping[str, bytes] | None = None
        """The newest texts of parts by name; None until they are read."""
        self._unread: Mapping[str, str] = {}
        """Reasons for which ConfigMaps of parts have no text."""
        self._former: bytes | None = None
        self._problems: Mapping[str, tuple[str, ...]] = {}
        self._assembling = asyncio.Lock()

    @property
    def parts(self) -> Mapping[str, bytes]:
        """The newest texts of parts by name."""
        return self._texts or {}

    def list_errors(self) -> tuple[str, ...]:
        """Return the problems of parts whose newest text is not used."""
        return tuple(problem for problems in self._problems.values() for problem in problems)

    async def on_document(self, raw: bytes, place: str) -> bool:
        async with self._assembling:
            self.root, self._place = raw, place
            is_whole = await self._is_whole(raw)
            if is_whole is None:
                return False
            if is_whole:
                self.are_wanted.clear()
                self._texts, self._unread = None, {}
                self._report({})
                return await self._receiver.on_document(raw, place)
            if self._is_signed:
                await self._receiver.on_unreadable([f"{place}: parts: {_UNSIGNED}"])
                return False
            self.are_wanted.set()
            return await self._assemble()

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        await self._receiver.on_unreadable(errors)

    async def on_parts(self, texts: Mapping[str, bytes], unread: Mapping[str, str]) -> None:
        """Receive all parts by name, and the reasons for which others have no text."""
        async with self._assembling:
            if self.are_wanted.is_set() and (texts, unread) != (self._texts, self._unread):
                self._texts, self._unread = texts, unread
                await self._assemble()

    async def on_unreadable_parts(self, reason: str) -> None:
        """Record that parts cannot be read: before the first time, the document is not known."""
        if self._texts is None and self.are_wanted.is_set():
            await self._receiver.on_unreadable([reason])

    async def _is_whole(self, raw: bytes) -> bool | None:
        """Return whether a root declares no parts; None if that is not known, which is reported."""
        if b"parts" not in raw or not _MAY_DECLARE_PARTS.search(raw):  # nearly no document has the word
            return True
        try:
            done = await self._check.assemble(AssemblyRequest(raw, {}, self._purpose))
        except CheckFailedError as error:
            reason = f"{self._place}: it is not known whether it has parts: {error}"
            await self._receiver.on_unreadable([reason])
            return None
        return done.document == raw

    async def _assemble(self) -> bool:
        """Assemble the document and pass it on, once the parts are read; return whether it is valid."""
        if self._texts is None:
            return False
        former = self._former or await self.read_former() or b""
        try:
            done = await self._check.assemble(AssemblyRequest(self.root, self._texts, self._purpose, former))
        except CheckFailedError as error:
            await self._receiver.on_unreadable([f"{self._place}: the parts could not be assembled: {error}"])
            return False
        is_good = await self._receiver.on_document(done.document, self._place)
        self._former = done.document if is_good else self._former
        problems = {part: tuple(f"{_name(part)}:{found}" for found in some) for part, some in done.problems.items()}
        self._report({**problems, **{part: (reason,) for part, reason in self._unread.items()}})
        return is_good

    def _report(self, problems: Mapping[str, tuple[str, ...]]) -> None:
        if problems != self._problems:
            self._problems = problems
            self._observer.on_policy_parts_checked(problems)


def _name(part: str) -> str:
    return f"configmap {NAMESPACE}/{PART_PREFIX}{part}: {KEY}"


async def _read_nothing() -> bytes | None:
    """Return nothing: there is no last good policy."""
    return None
