"""Reporter of places: Events on waiting Pods, at first, when the place has halved, and when the cause changes."""

import asyncio
import re

from webhook.controller.release.pod_places import PodPlace
from webhook.controller.release.queue_reader import QueueReader
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.reporting.queue_document import QueueRow, WaitCause, format_duration
from webhook.ports import PlaceEvents

_SCAN_SECONDS, _SCAN_SECONDS_MAX = 2.0, 30.0
_SCAN_SHARE = 0.01
"""Part of the time that scans may take: many Pods are scanned less often."""
_EVENTS_PER_SCAN_MAX = 40
"""At most 20 a second: each Event is an object that the API server keeps for an hour."""
_NUMBER = re.compile(r"[0-9][0-9.]*[A-Za-z]*")
_SETTLED_SECONDS = 2
"""A Pod that is released sooner has no Event."""


class PlaceReporter:
    """Reports the places that a `QueueReader` shows. Beyond the bound, Events are dropped, not postponed."""

    def __init__(self, queue: QueueReader, events: PlaceEvents) -> None:
        self._queue = queue
        self._events = events
        self._reported: dict[str, tuple[int, str]] = {}
        """Place in the class and cause of the last report on each Pod, by uid."""

    async def run(self) -> None:
        """Report until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await self.scan()
            await asyncio.sleep(compute_pause_seconds(clock() - began))

    async def scan(self) -> None:
        """Report what has changed since the last scan."""
        places, stopped, due = self._queue.list_places(), self._queue.find_stopped_services(), list[PodPlace]()
        reported: dict[str, tuple[int, str]] = {}
        for place in places:
            waiting = place.pod.waiting
            cause: str = stopped.get(waiting.service, WaitCause.QUOTA_EXCEEDED)
            if lack := self._queue.find_lack(place):
                cause = _NUMBER.sub("", lack)  # each further member is no other cause
            if self._queue.is_failing(place):
                cause = WaitCause.RELEASE_FAILS
            uid, now = waiting.uid, (place.class_place, cause)
            last = self._reported.get(uid)
            if last is not None and last[1] == now[1] and now[0] * 2 > last[0]:
                reported[uid] = last
            elif self._queue.compute_waited_seconds(place) >= _SETTLED_SECONDS:
                reported[uid] = now
                due.append(place)
        self._reported = reported
        for row in await self._queue.make_rows(due[:_EVENTS_PER_SCAN_MAX]):
            self._events.offer(row.namespace, row.name, row.uid, _format_note(row), f"{row.class_place} {row.cause}")
        for _ in due[_EVENTS_PER_SCAN_MAX:]:
            self._events.drop()


def compute_pause_seconds(scan_seconds: float) -> float:
    """Return how long to wait after a scan of this duration."""
    return min(max(scan_seconds / _SCAN_SHARE, _SCAN_SECONDS), _SCAN_SECONDS_MAX)


def _format_note(row: QueueRow) -> str:
    """Return for example `7th of 23 in gold, about 40s: a limit of web is reached`."""
    if row.expected_at is None:
        return f"{row.place_text}: {row.why}"
    seconds = (parse_microseconds(row.expected_at) - parse_microseconds(row.since)) // 1_000_000 - row.waiting_seconds
    return f"{row.place_text}, about {format_duration(max(1, seconds))}: {row.why}"
