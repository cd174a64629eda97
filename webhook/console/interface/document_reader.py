"""Reader of the servers' documents for all pages: each is read once for all that ask within a moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.commands.clients.status_client import parse_queue
from webhook.commands.explain_target import ExplainTarget
from webhook.console.interface.console_policies import ConsolePolicies
from webhook.console.interface.drafts import Drafts
from webhook.core.console_views.recent_denials import MINUTES, DeniedPage, RecentDenials
from webhook.core.console_views.status_document import QueueLine, ServerPage
from webhook.core.diagnosis import Report
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.lru_cache import LruCache
from webhook.errors import UserError

_FRESH_SECONDS = 1.0
_REST_FACTOR = 9
"""Rest after a read, in multiples of its duration: reading takes at most a tenth of the time."""
_RECORDS, _PAGES_MAX = 1_000, 5
_AGAIN = "60s"
"""Records of other servers arrive late: each query covers this period again."""
_EXPLANATIONS_AT_ONCE = 2
_KEYS_MAX = 256
"""Documents that are kept by their key."""
_T = TypeVar("_T")
_PLAIN_REMEDY = "give --server the plain port (--plain-listen) of podgate serve"


class ReadablePort(Protocol):
    """A port of a process: its name for people, and the body at a path; UserError if there is none."""

    @property
    def name(self) -> str: ...

    @property
    def get(self) -> Callable[[str], Awaitable[bytes]]: ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of an object, None if nothing is; and what could not be read, with the reason."""

    report: Report | None
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsolePorts:
    """The ports that are read. `missing` has by `decisions` or `leader` why there is none."""

    plain: ReadablePort
    decisions: ReadablePort | None = None
    leader: ReadablePort | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[ExplainTarget], Awaitable[Explanation]] | None = None
    """Explains an object as `podgate explain` does; None: only the decision port's records are asked."""
    extender: Callable[[str], Awaitable[tuple[str, bytes]]] | None = None
    """Returns the name of the first extender that answers, and the body at a path of its decision port."""
    policies: ConsolePolicies | None = None
    """None: this console knows the policy in force alone."""


class _Shared(Generic[_T]):
    """A value that all callers during a read, and the rest after it, share."""

    def __init__(self, read: Callable[[], Awaitable[_T]]) -> None:
        self._read = read
        self._reading: asyncio.Task[_T] | None = None
        self._fresh_until = 0.0

    async def get(self) -> _T:
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._fresh_until):
            self._reading = asyncio.create_task(self._run())
            self._reading.add_done_callback(_forget_failure)
        return await asyncio.shield(self._reading)

    async def _run(self) -> _T:
        began = time.monotonic()
        try:
            return await self._read()
        finally:
            ended = time.monotonic()
            self._fresh_until = ended + max(_FRESH_SECONDS, _REST_FACTOR * (ended - began))


def _forget_failure(reading: asyncio.Task[_T]) -> None:
    """Take a failure that nobody waits for any more."""
    if not reading.cancelled():
        reading.exception()


@dataclass(frozen=True, slots=True)
class DenialCounts:
    """Denials by service in each of the last minutes; `problem` is why some or all are missing."""

    by_service: Mapping[str, Sequence[int]]
    problem: str = ""


class DocumentReader:
    """Reads typed documents from the ports."""

    def __init__(self, ports: ConsolePorts, now_us: Callable[[], int]) -> None:
        self.ports = ports
        self.now_us = now_us
        self.explaining = asyncio.Semaphore(_EXPLANATIONS_AT_ONCE)
        """Each explanation reads for its viewer alone: others wait for their turn."""
        self._kept: LruCache[str, _Shared[Any]] = LruCache(_KEYS_MAX)
        self.drafts = Drafts()
        self._denials = RecentDenials()
        self._has_read_denials = False
        self._server = _Shared(self._read_server)
        self._queues = _Shared(self._read_queues)
        self._counts = _Shared(self._read_denials)
        self._made: dict[Callable[..., Any], _Shared[Any]] = {}

    async def share(self, make: Callable[["DocumentReader"], Awaitable[_T]]) -> _T:
        """Return what a page makes of documents, whatever its query is: it is made once for all that ask."""
        shared = self._made.get(make)
        if shared is None:
            shared = self._made[make] = _Shared(lambda: make(self))
        made: _T = await shared.get()
        return made

    async def read_once(self, key: str, read: Callable[[], Awaitable[_T]]) -> _T:
        """Return the document of a key, read once for all that ask; the least recently used ones are forgotten."""
        shared = self._kept.get(key)
        if shared is None:
            shared = _Shared(read)
            self._kept.keep(key, shared)
        found: _T = await shared.get()
        return found

    async def read_server(self) -> ServerPage:
        """Return the status document. UserError: it cannot be read."""
        return await self._server.get()

    async def read_queues(self) -> tuple[QueueLine, ...] | None:
        """Return the services with waiting Pods; None if no process that releases Pods answers."""
        return await self._queues.get()

    async def read_denials(self) -> DenialCounts:
        return await self._counts.get()

    async def _read_server(self) -> ServerPage:
        plain = self.ports.plain
        try:
            return msgspec.json.decode(await plain.get("/status"), type=ServerPage)
        except UNREADABLE_JSON as error:
            text = f"{plain.name}/status answers, but not as a server of Podgate of this version: {error}"
            raise UserError(text, _PLAIN_REMEDY) from None

    async def _read_queues(self) -> tuple[QueueLine, ...] | None:
        own = (await self.read_server()).queues
        if own is not None:
            return own.services
        if self.ports.leader is None:
            return None
        try:
            found = parse_queue(await self.ports.leader.get("/queue?limit=0"), self.ports.leader.name)
        except UserError:
            return None
        if not found.leads:
            return None
        return tuple(
            QueueLine(depth.service, depth.waiting, depth.oldest_seconds, depth.paused) for depth in found.services
        )

    async def _read_denials(self) -> DenialCounts:
        port = self.ports.decisions
        if port is None:
            return DenialCounts({}, self.ports.missing.get("decisions", ""))
        problem = ""
        try:
            problem = await self._add_denials(port)
        except (UserError, *UNREADABLE_JSON) as error:
            problem = f"decisions cannot be read: {' '.join(str(error).split())}"
        return DenialCounts(self._denials.list_counts(self.now_us()), problem)

    async def _add_denials(self, port: ReadablePort) -> str:
        """Count new records, page by page; return why some are missing."""
        asked = {
            "denied": "true",
            "since": _AGAIN if self._has_read_denials else f"{MINUTES}m",
            "limit": str(_RECORDS),
        }
        before: str | None = ""
        for _ in range(_PAGES_MAX):
            query = urlencode({**asked, **({"before": before} if before else {})})
            page = msgspec.json.decode(await port.get(f"/api/v1/decisions?{query}"), type=DeniedPage)
            self._denials.add(page.decisions, self.now_us())
            if page.error:
                return page.error
            before = page.next
            if before is None:
                self._has_read_denials = True
                return ""
        self._has_read_denials = True
        return f"only the newest {_PAGES_MAX * _RECORDS} denials are counted"
