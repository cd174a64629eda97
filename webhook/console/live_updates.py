"""Live updates: server-sent events with the cells of a page that have changed, for a bounded number of browsers."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from webhook.core.console_views.cell import Cells, LiveCell, View, find_changed_cells
from webhook.core.plain_text import escape_document, escape_line
from webhook.errors import UserError

_LOGGER = logging.getLogger("podgate.console")
CLIENTS_MAX = 50
BACKLOG_MAX = 8
"""Events that a browser may be behind; then it is dropped, and comes again by itself."""
PERIOD_SECONDS = 2.0
_QUIET_PERIODS_MAX = 7
"""Then a comment is sent, so that a connection that is gone is noticed."""
_COMMENT = b": still here\n\n"


class Update(Struct, frozen=True, omit_defaults=True):
    """The changed cells of a page, the names that it lists, and why it cannot be read."""

    cells: Cells
    order: Sequence[str]
    problem: str = ""
    now: str = ""
    """When it was true, by the clock of the server."""


class TooManyClientsError(Exception):
    """The number of browsers is at its limit."""


class Subscriber:
    """One browser: events that wait to be sent. None ends it."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_dropped = False

    def put(self, event: bytes | None) -> None:
        if self.is_dropped:
            return
        self.is_dropped = self.events.qsize() >= BACKLOG_MAX
        self.events.put_nowait(None if self.is_dropped else event)


class _Topic:
    """One page with its query and its viewer: read once for all who look at it."""

    def __init__(self, build: Callable[[], Awaitable[View]]) -> None:
        self.build = build
        self.subscribers: list[Subscriber] = []
        self.epoch = secrets.token_hex(4)
        self.number = 0
        self.last: Update | None = None
        self.quiet_periods = 0
        self.task: asyncio.Task[None] | None = None

    @property
    def event_id(self) -> str:
        return f"{self.epoch}-{self.number}"


class LiveUpdates:
    """Topics with the browsers that look at them. Nothing is read while nobody looks."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        self._period_seconds = period_seconds
        self._topics: dict[str, _Topic] = {}

    @property
    def clients(self) -> int:
        return sum(len(topic.subscribers) for topic in self._topics.values())

    def subscribe(self, key: str, build: Callable[[], Awaitable[View]], last_id: str) -> Subscriber:
        """Add a browser. What it has not seen is sent: nothing if `last_id` is that of the newest event."""
        if self.clients >= CLIENTS_MAX:
            raise TooManyClientsError
        topic = self._topics.setdefault(key, _Topic(build))
        subscriber = Subscriber()
        topic.subscribers.append(subscriber)
        if topic.last is not None and last_id != topic.event_id:
            subscriber.put(_encode(topic, topic.last))
        if topic.task is None:
            topic.task = asyncio.create_task(self._run(key, topic))
        return subscriber

    def unsubscribe(self, key: str, subscriber: Subscriber) -> None:
        """Remove a browser, and end the topic of which it was the last one."""
        topic = self._topics.get(key)
        if topic is None or subscriber not in topic.subscribers:
            return
        topic.subscribers.remove(subscriber)
        if not topic.subscribers:
            del self._topics[key]
            if topic.task is not None:
                topic.task.cancel()

    async def close(self) -> None:
        """End all browsers' connections."""
        tasks = [topic.task for topic in self._topics.values() if topic.task is not None]
        for topic in self._topics.values():
            for subscriber in topic.subscribers:
                subscriber.events.put_nowait(None)
        self._topics.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: str, topic: _Topic) -> None:
        try:
            while self._topics.get(key) is topic:
                _publish(topic, await _read(topic))
                await asyncio.sleep(self._period_seconds)
        except Exception:
            _LOGGER.exception("the updates of a page failed")
            for subscriber in topic.subscribers:
                subscriber.put(None)


async def _read(topic: _Topic) -> Update:
    """Return the whole page; the former one with the problem if it cannot be read."""
    try:
        view = await topic.build()
    except UserError as error:
        former = topic.last or Update({}, ())
        age = f"what is shown is of {former.now[11:19]} UTC: " if former.now else ""
        return Update(former.cells, former.order, age + escape_line(" ".join(str(error).split())), former.now)
    return Update(escape_document(view.list_cells()), [escape_line(name) for name in view.list_order()], now=view.time)


def _publish(topic: _Topic, update: Update) -> None:
    former, topic.last = topic.last, update
    if former is None:
        changed: dict[str, LiveCell] | Cells = update.cells
    else:
        changed = find_changed_cells(former.cells, update.cells)
    is_same = former is not None and not changed and former.order == update.order and former.problem == update.problem
    if is_same:
        topic.quiet_periods += 1
        if topic.quiet_periods < _QUIET_PERIODS_MAX:
            return
        event = _COMMENT
    else:
        topic.number += 1
        event = _encode(topic, Update(changed, update.order, update.problem, update.now))
    topic.quiet_periods = 0
    for subscriber in topic.subscribers:
        subscriber.put(event)


def _encode(topic: _Topic, update: Update) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (topic.event_id.encode(), msgspec.json.encode(update))
