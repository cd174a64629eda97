"""A collection in the API server, followed: list, then watch from the list's version, through whatever happens.

Lists are always consistent reads (no resourceVersion), unlike a reflector's first one: they are rare, and who starts or
begins anew must not take an API server's lagging cache for the truth. In between a watch goes on from the last version
that it brought, but only where nothing speaks against that version: a connection that was refused, or one that broke
off after it had brought something. A watch that was refused, spoke nonsense, or opened and then brought not even a
bookmark is followed by a list. So a version that the API server no longer has (410), has not yet or never will have
again (etcd restored from a backup), or a missing right to watch, cost a list each time, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic

import aiohttp
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decoded, listed
from webhook.adapters.kubernetes.api.objects import AnObject, ApiStatus, Bookmark, WatchEvent
from webhook.adapters.kubernetes.api.requests import (
    GONE,
    TOO_MANY,
    ApiError,
    GarbledError,
    RefusedError,
    UnreachedError,
    answered,
)
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.ports import WatchReports
from webhook.support.condition import Condition

__all__ = ["ApiTiming", "Taker", "Watch"]

# An object is at most 3 MiB, and JSON may need six bytes for one.
_LINE_BYTES_MAX = 20 << 20
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


@dataclass(frozen=True, slots=True)
class Taker(Generic[AnObject]):
    """Who is told what is there."""

    all: Callable[[ListSnapshot[AnObject]], Awaitable[None]]
    """Take this for all there is: what is not in it is gone."""
    one: Callable[[AnObject, bool], Awaitable[None]]
    """Take one change; the flag says that it is the object's end."""
    reached: Callable[[str], None] = lambda _: None
    """Hear of a version that nothing before is missing at."""
    lost: Callable[[], None] = lambda: None
    """Hear that changes have been missed: only a list can tell what is there."""


@dataclass(frozen=True, slots=True)
class Begun:
    """From which version a watch is to go on after a list; an older one than the list's may be gone by now."""

    version: str
    is_older: bool = False


class Watch(Generic[AnObject]):
    """Follows one collection until cancelled."""

    def __init__(
        self,
        client: ApiClient,
        collection: Collection[AnObject],
        taker: Taker[AnObject],
        *,
        reports: WatchReports,
        timing: ApiTiming,
        lister: Callable[[], Awaitable[Begun]] | None = None,
    ) -> None:
        """Make it; a `lister` lists in the place of `taker.all`, and raises ApiError."""
        self._client = client
        self._collection = collection
        self._taker = taker
        self._lister = lister or self._list_at_once
        self._on_contact = reports.on_contact
        self._timing = timing
        self._backoff = timing.backoff()
        self._list_failure = Condition(reports.on_trouble, reports.on_over)
        self._watch_failure = Condition(reports.on_trouble, reports.on_over)
        self._version: str | None = None
        """From where a watch can go on; None where only a list can tell."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            asked_seconds = await self._go_on()
            if loop.time() - began >= self._timing.healthy_seconds:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_seconds(asked_seconds))

    async def _go_on(self) -> float:
        """List if need be, and watch while it goes well. Return the pause that the API server asked for."""
        failure, verb = self._list_failure, "list"
        resumed = self._version is not None
        try:
            if not resumed:
                resumed = await self._list()
            failure, verb = self._watch_failure, "watch"
            if await self._watch(resumed=resumed):
                self._backoff.reset()
        except ApiError as error:
            failure.enter(f"cannot {verb} {self._collection.name}: {error.describe(self._collection.right)}")
            return error.retry_after_seconds
        return 0.0

    async def _list(self) -> bool:
        """List; say whether the watch goes on from an older version."""
        begun = await self._lister()
        self._version = begun.version
        self._list_failure.leave()
        self._on_contact()
        return begun.is_older

    async def _list_at_once(self) -> Begun:
        snapshot = await listed(self._client, self._collection, self._timing.request_seconds)
        await self._taker.all(snapshot)
        return Begun(snapshot.version)

    async def _watch(self, *, resumed: bool) -> bool:
        """Watch until it ends. Return whether it went well: that ends a series of failures, however short it was."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        version, self._version = self._version, None  # it is good again as soon as the watch has brought something
        opened, broken = False, "closed"
        try:
            async with self._stream(version or "") as response:
                opened = True
                await self._follow(response)
        except UnreachedError as error:
            if not opened:
                self._version = version
                raise
            broken = str(error)
        except RefusedError as error:
            usual = error.status == GONE and (resumed or self._version is not None)
            self._version = (self._version or version) if error.status == TOO_MANY else None
            if error.status == GONE:
                self._taker.lost()
            if usual:  # it happens to every watch that was cut for long
                return resumed  # the API server is there again: the list that is due need not wait as it had to
            raise
        except GarbledError:
            self._version = None
            self._taker.lost()
            raise
        # One that was silent for long is no news: where nothing at all changes there may be no bookmarks either.
        if self._version is None and loop.time() - began < self._timing.healthy_seconds:
            raise UnreachedError(f"it ended before it had brought anything: {broken}")
        return self._version is not None

    def _stream(self, version: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        seconds = self._timing.watch_seconds()
        timeout = aiohttp.ClientTimeout(
            total=seconds + self._timing.request_seconds,
            sock_connect=self._timing.request_seconds,
            sock_read=self._timing.inactivity_seconds,
        )
        query = self._collection.query(
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
        )
        return answered(self._client, "GET", self._collection.path, timeout, query)

    async def _follow(self, response: aiohttp.ClientResponse) -> None:
        lines = Lines()
        async for chunk in response.content.iter_any():
            for line in lines.feed(chunk):
                await self._take(decoded(line, WatchEvent))

    async def _take(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = decoded(event.object, ApiStatus)
            raise RefusedError(status.code, status.message or status.reason)
        if event.type == "BOOKMARK":
            self._version = decoded(event.object, Bookmark).metadata.resource_version or None
            self._taker.reached(self._version or "")
        elif event.type in _CHANGES:
            changed = decoded(event.object, self._collection.item)
            await self._taker.one(changed, event.type == "DELETED")
            self._version = changed.metadata.resource_version or None
            self._taker.reached(self._version or "")
        else:
            raise GarbledError(f"an event of type {event.type!r}")
        self._watch_failure.leave()
        self._on_contact()


class Lines:
    """Splits a stream into lines, however long: the stream's own `readline` would stop at its buffer's size."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        head, *rest = chunk.split(b"\n")
        self._begun += head
        for begin in rest:
            if line := bytes(self._begun.strip()):
                yield line
            self._begun = bytearray(begin)
        if len(self._begun) > _LINE_BYTES_MAX:
            raise GarbledError(f"a line of more than {_LINE_BYTES_MAX} bytes")
