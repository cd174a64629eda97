"""List and watch of one collection, with recovery from every failure.

Unlike a reflector's first list, every list is a consistent read (no resourceVersion): lists are rare, and a lagging API
server cache must not be mistaken for the current state. A watch resumes from its last version only after a failure that
does not put that version in doubt: the connection was refused, or it broke after at least one event. A watch that was
rejected, sent an invalid response, or opened and ended without even a bookmark is followed by a list. So a version that
the API server no longer has (410), does not have yet, or never will have again (etcd restored from a backup), and a
missing permission to watch, cost one list each time and nothing else. An object that cannot be decoded is reported by
its name, and loses its own data alone: the list and the watch go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic

from kubernetes_asyncio.client import ApiClient
from msgspec import Raw

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object
from webhook.adapters.kubernetes.api.objects import AnObject, ApiStatus, Bookmark, WatchEvent
from webhook.adapters.kubernetes.api.pages import list_readable
from webhook.adapters.kubernetes.api.requests import (
    GONE,
    TOO_MANY,
    ApiError,
    BodyReader,
    GarbledError,
    RefusedError,
    RequestTimeouts,
    UnreachedError,
    open_request,
)
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject, UnreadObjects, decode_item
from webhook.ports import WatchReports
from webhook.support.condition import Condition

__all__ = ["ApiTiming", "Watch", "WatchHandler"]

# An object is at most 3 MiB, and JSON may escape a byte as six.
_LINE_BYTES_MAX = 20 << 20
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


async def _keep_former(_: UnreadObject, __: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_unread
    """Do nothing: what was known of the object stays, if anything was."""


@dataclass(frozen=True, slots=True)
class WatchHandler(Generic[AnObject]):
    """Callbacks that receive lists and changes."""

    on_list: Callable[[ListSnapshot[AnObject]], Awaitable[None]]
    """Receives a complete list: objects that are not in it are gone, but for those that are `unread`."""
    on_change: Callable[[AnObject, bool], Awaitable[None]]
    """Receives one changed object and whether it was deleted."""
    on_reached: Callable[[str], None] = lambda _: None
    """Receives each version up to which no change has been missed."""
    on_lost: Callable[[], None] = lambda: None
    """Called when changes may have been missed; a list follows."""
    on_unread: Callable[[UnreadObject, bool], Awaitable[None]] = _keep_former
    """Receives a changed object that cannot be decoded, and whether it was deleted."""


@dataclass(frozen=True, slots=True)
class ListStart:
    """The version from which to watch after a list. One that `is_older` than the list's may have expired."""

    version: str
    is_older: bool = False
    unread: Sequence[UnreadObject] = ()
    """Objects that were left out of the list."""


class Watch(Generic[AnObject]):
    """Lists and watches one collection until cancelled."""

    def __init__(
        self,
        client: ApiClient,
        collection: Collection[AnObject],
        handler: WatchHandler[AnObject],
        *,
        reports: WatchReports,
        timing: ApiTiming,
        lister: Callable[[], Awaitable[ListStart]] | None = None,
    ) -> None:
        """Create a watch. A `lister` replaces the list and `handler.on_list`, and raises ApiError."""
        self._client = client
        self._collection = collection
        self._handler = handler
        self._lister = lister or self._list_at_once
        self._on_contact = reports.on_contact
        self._timing = timing
        self._backoff = timing.make_backoff()
        self._list_failure = Condition(reports.on_trouble, reports.on_over)
        self._watch_failure = Condition(reports.on_trouble, reports.on_over)
        self._unread = UnreadObjects(reports.on_unread)
        self._version: str | None = None
        """Version to resume from; None if a list is needed."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            asked_seconds = await self._resume()
            if loop.time() - began >= self._timing.healthy_seconds:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_seconds(asked_seconds))

    async def _resume(self) -> float:
        """List if needed, then watch until it ends. Return the delay that the API server requested, in seconds."""
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
        """List. Return whether the watch resumes from an older version than the list's."""
        begun = await self._lister()
        self._version = begun.version
        self._unread.replace(begun.unread)
        self._list_failure.leave()
        self._on_contact()
        return begun.is_older

    async def _list_at_once(self) -> ListStart:
        snapshot = await list_readable(self._client, self._collection, self._timing.request_seconds)
        await self._handler.on_list(snapshot)
        return ListStart(snapshot.version, unread=snapshot.unread)

    async def _watch(self, *, resumed: bool) -> bool:
        """Watch until it ends. Return whether it succeeded, which resets the backoff, however short the watch was."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        version, self._version = self._version, None  # set again by the first event
        opened, broken = False, "closed"
        try:
            async with self._open_stream(version or "") as read:
                opened = True
                await self._follow(read)
        except UnreachedError as error:
            if not opened:
                self._version = version
                raise
            broken = str(error)
        except RefusedError as error:
            usual = error.status == GONE and (resumed or self._version is not None)
            self._version = (self._version or version) if error.status == TOO_MANY else None
            if error.status == GONE:
                self._handler.on_lost()
            if usual:  # expected after a long disconnection
                return resumed  # the API server is back: reset the backoff, so that the list that is due need not wait
            raise
        except GarbledError:
            self._version = None
            self._handler.on_lost()
            raise
        # A long watch without events is no failure: if nothing changes there may be no bookmarks either.
        if self._version is None and loop.time() - began < self._timing.healthy_seconds:
            raise UnreachedError(f"it ended before its first event: {broken}")
        return self._version is not None

    def _open_stream(self, version: str) -> AbstractAsyncContextManager[BodyReader]:
        seconds = self._timing.draw_watch_seconds()
        timeouts = RequestTimeouts(
            total_seconds=seconds + self._timing.request_seconds,
            connect_seconds=self._timing.request_seconds,
            silence_seconds=self._timing.inactivity_seconds,
        )
        query = self._collection.build_query(
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(seconds)),
        )
        accept = self._collection.watch_accept
        return open_request(self._client, "GET", self._collection.path, timeouts, query, accept=accept)

    async def _follow(self, read: BodyReader) -> None:
        lines = Lines()
        while chunk := await read():
            for line in lines.split(chunk):
                await self._apply(decode_object(line, WatchEvent))

    async def _apply(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = decode_object(event.object, ApiStatus)
            raise RefusedError(status.code, status.message or status.reason)
        if event.type == "BOOKMARK":
            self._version = decode_object(event.object, Bookmark).metadata.resource_version or None
            self._handler.on_reached(self._version or "")
        elif event.type in _CHANGES:
            self._version = await self._apply_change(event.object, gone=event.type == "DELETED") or None
            self._handler.on_reached(self._version or "")
        else:
            raise GarbledError(f"an event of type {event.type!r}")
        self._watch_failure.leave()
        self._on_contact()

    async def _apply_change(self, raw: Raw, *, gone: bool) -> str:
        """Hand on a changed object; return its version."""
        changed = decode_item(raw, self._collection.item)
        if not isinstance(changed, UnreadObject):
            self._unread.forget(raw)
            await self._handler.on_change(changed, gone)
            return changed.metadata.resource_version
        if gone:
            self._unread.forget(raw)
        else:
            self._unread.put(changed)
        await self._handler.on_unread(changed, gone)
        return changed.version


class Lines:
    """Splitter of a stream into lines; unlike the stream's `readline`, it is not limited to the buffer's size."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def split(self, chunk: bytes) -> Iterator[bytes]:
        head, *rest = chunk.split(b"\n")
        self._begun += head
        for begin in rest:
            if line := bytes(self._begun.strip()):
                yield line
            self._begun = bytearray(begin)
        if len(self._begun) > _LINE_BYTES_MAX:
            raise GarbledError(f"a line of more than {_LINE_BYTES_MAX} bytes")
