"""Background sender of Events, with bounds on queue, rate and age. Offering an Event never blocks."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import Collection
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY,
    ApiError,
    RefusedError,
    send_request,
)
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, minute_of
from webhook.core.reporting.queue_document import EXPIRED
from webhook.ports import WatchReports
from webhook.support.condition import Condition

QUEUE_MAX = 1_000
"""About two minutes' worth at the sending rate."""
_SERVER_ERROR = 500
_RIGHT = "create events.events.k8s.io in"
# Part of the API server's message for a 403 about a namespace that is being deleted, not about permissions.
_TERMINATING = "is being terminated"


class EventResult(StrEnum):
    """The result for an Event."""

    WRITTEN = "written"
    KNOWN = "known"
    """Another server has already sent the same Event."""
    DROPPED = "dropped"
    """The queue is full, or the namespace is being deleted."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EventTiming:
    """Rate limit (a burst, then a number per second), timeout and maximum age."""

    per_second: float = 10.0
    burst: int = 50
    request_seconds: float = 5.0
    patience_seconds: float = 120.0
    """Events that could not be sent within this time are given up."""
    retries: ApiTiming = field(default_factory=ApiTiming)


class _Bucket:
    """Token bucket for requests, by the loop's clock."""

    def __init__(self, timing: EventTiming) -> None:
        self._timing = timing
        self._tokens = float(timing.burst)
        self._at_seconds = 0.0

    def wait_seconds(self, now_seconds: float) -> float:
        """Take a token; return how long to wait for it, in seconds."""
        gained = (now_seconds - self._at_seconds) * self._timing.per_second
        self._tokens = min(float(self._timing.burst), self._tokens + gained) - 1
        self._at_seconds = now_seconds
        return max(0.0, -self._tokens / self._timing.per_second)


class _Offered(NamedTuple):
    happening: Happening
    at_seconds: float


class _ConfigMapMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Named(Struct, frozen=True):
    metadata: _ConfigMapMetadata


class EventSender:
    """Sender of Events. `instance` names this server; `where` names its namespaces in messages.

    `on_result` receives the result of each Event once.
    """

    def __init__(
        self,
        client: ApiClient,
        instance: str,
        *,
        reports: WatchReports,
        on_result: Callable[[EventResult], None],
        where: str = "all namespaces",
        timing: EventTiming = EventTiming(),
    ) -> None:
        self._client = client
        self._instance = instance
        self._reports = reports
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._reported_statuses: set[int] = set()
        """HTTP statuses that have been reported."""
        self._on_result = on_result
        self._right = f"{_RIGHT} {where}"
        self._timing = timing
        self._queue: asyncio.Queue[_Offered] = asyncio.Queue(QUEUE_MAX)

    def offer(self, happening: Happening) -> bool:
        """Enqueue an Event; False if the queue is full. Does not block."""
        try:
            self._queue.put_nowait(_Offered(happening, asyncio.get_running_loop().time()))
        except asyncio.QueueFull:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Count an Event that is not enqueued."""
        self._on_result(EventResult.DROPPED)

    async def run(self) -> None:
        """Send enqueued Events until cancelled."""
        bucket, clock = _Bucket(self._timing), asyncio.get_running_loop().time
        while True:
            offered = await self._queue.get()
            await asyncio.sleep(bucket.wait_seconds(clock()))
            self._on_result(await self._send(offered))

    async def _send(self, offered: _Offered) -> EventResult:
        """Send one Event; retry without an answer until it is too old."""
        backoff, clock = self._timing.retries.make_backoff(), asyncio.get_running_loop().time
        while True:
            try:
                await self._write(offered.happening)
            except ApiError as error:
                result = self._judge_error(error)
                if result is None and clock() - offered.at_seconds >= self._timing.patience_seconds:
                    result = EventResult.FAILED
                if result is not None:
                    return result
                await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
            else:
                self._failure.leave()
                return EventResult.WRITTEN

    def _judge_error(self, error: ApiError) -> EventResult | None:
        """Return the result; None to retry. A refusal is reported only once per status."""
        if not isinstance(error, RefusedError) or error.status >= _SERVER_ERROR or error.status == TOO_MANY:
            self._failure.enter(f"cannot write Events: {error}")
            return None
        self._failure.leave()
        if error.status == CONFLICT:
            return EventResult.KNOWN
        if error.status == NOT_FOUND or (error.status == FORBIDDEN and _TERMINATING in str(error)):
            return EventResult.DROPPED
        if error.status not in self._reported_statuses:
            self._reported_statuses.add(error.status)
            self._reports.on_trouble(f"cannot write an Event: {error.describe(self._right)}")
        return EventResult.FAILED

    async def _write(self, happening: Happening) -> None:
        if not happening.regarding.uid:
            happening = await self._identify(happening)
        body = happening.body(self._instance)
        await send_request(self._client, "POST", happening.path, self._timing.request_seconds, body=body)

    async def _identify(self, happening: Happening) -> Happening:
        """Return the Event with its ConfigMap's uid and, if `of_version`, its resourceVersion in the occasion."""
        about = happening.regarding
        place = f"configmap {about.namespace}/{about.name}"
        collection = Collection(
            item=_Named,
            items=Listed[_Named],
            path=f"/api/v1/namespaces/{about.namespace}/configmaps",
            name=place,
            right=f"list configmaps named {about.name} in {about.namespace}",
            object_name=about.name,
        )
        items = (await list_objects(self._client, collection, self._timing.request_seconds)).items
        found = (
            items[0].metadata if items else _ConfigMapMetadata(resource_version=f"gone in {minute_of(happening.at_ns)}")
        )
        happening = happening._replace(regarding=about._replace(uid=found.uid))
        if not happening.of_version:
            return happening
        return happening._replace(occasion=f"{happening.occasion} {found.resource_version}")


PLACE_TIMING = EventTiming(per_second=20.0, burst=40, patience_seconds=30.0)


class PodPlaceEvents:
    """A `ports.PlaceEvents`. The same place for the same cause is one Event, also after a change of the leader."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self.run = sender.run
        self.drop = sender.drop

    def offer(self, namespace: str, name: str, uid: str, note: str, occasion: str) -> None:
        about = Regarding("v1", "Pod", namespace, name, uid)
        at_ns = time.time_ns()
        self._sender.offer(Happening(about, EventType.NORMAL, "WaitingForQuota", "Wait", note, occasion, at_ns))

    def offer_expired(self, namespace: str, name: str, uid: str, note: str, *, is_kept: bool) -> None:
        about, action = Regarding("v1", "Pod", namespace, name, uid), "Keep" if is_kept else "Delete"
        self._sender.offer(Happening(about, EventType.WARNING, EXPIRED, action, note, action, time.time_ns()))

    def offer_evicted(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        about = Regarding("v1", "Pod", namespace, name, uid)
        self._sender.offer(Happening(about, EventType.NORMAL, reason, "Evict", note, reason, time.time_ns()))
