"""Lease for leader election: acquire, renew, release.

As in client-go, a holder counts as alive for one duration, by the local clock, since its Lease was last seen to change;
the times in the Lease are only informational. Unlike in client-go, an API server outage that this process observed
restarts that duration, so that the holder has time to renew. `keep` goes on until it reads that another holder has
acquired the Lease: while no Lease can be written, none can be acquired either. `lead` is stricter because its work
writes to other places: it stops as soon as others may consider this holder dead.
"""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import TOO_MANY, ApiError, RefusedError
from webhook.adapters.kubernetes.leases.lease_object import PLACE, RIGHT, LeaseObject, LeaseSighting, read, write
from webhook.errors import UserError
from webhook.ports import WatchReports
from webhook.support.condition import Condition

_SERVER_ERROR = 500
_RELEASES_MAX = 3


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Duration, intervals and timeout."""

    duration_seconds: int = 15
    """A holder whose Lease has not changed for this long is considered dead."""
    renew_seconds: float = 5.0
    retry_seconds: float = 1.0
    request_seconds: float = 3.0


class _Obstacle(NamedTuple):
    """The reason why this process does not hold the Lease."""

    reason: str
    is_answer: bool = True
    """False if the API server did not answer, so that the holder is unknown."""
    holder: str = ""
    """The other holder, if that is the reason."""


class Lease:
    """One candidate's view of the Lease. Call `take`, then `keep` until cancelled; or `lead`; at the end `release`.

    `name` identifies the holder to operators. If it `is_unique`, as a Pod's name is, a holder of the same name is an
    earlier process that has ended. `on_wait` receives the reason for waiting for another holder. `notes` are written to
    the Lease as annotations.
    """

    def __init__(
        self,
        client: ApiClient,
        name: str,
        *,
        is_unique: bool,
        reports: WatchReports,
        on_wait: Callable[[str], None],
        notes: Callable[[], Mapping[str, str]] = dict,
        timing: LeaseTiming = LeaseTiming(),
    ) -> None:
        self.obstacle = f"{PLACE} has not been asked for yet"
        """Reason why this process does not hold the Lease; "" while it does."""
        self.trouble = self.obstacle
        """Reason why the holder is unknown; "" if it is known."""
        self.identity = f"{name}_{secrets.token_hex(4)}"
        self._client = client
        self._former = f"{name}_" if is_unique else None
        self._on_contact = reports.on_contact
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._on_wait = on_wait
        self._notes = notes
        self._found_notes: Mapping[str, str] = {}
        self._timing = timing
        self._seen: LeaseSighting | None = None
        self._renewed_at = 0.0
        """Start of the newest successful renewal, by the loop's clock."""

    async def take(self, patience_seconds: float = math.inf, remedy: str = "") -> None:
        """Wait until the Lease is acquired. Raise UserError, with `remedy`, if refused for all of `patience_seconds`.

        A request that the API server does not answer restarts this period.
        """
        clock = asyncio.get_running_loop().time
        refused_since: float | None = None
        while (met := await self._attempt(self._take)) is not None:
            if met.holder and met.reason != self.obstacle:
                self._on_wait(met.reason)
            self.obstacle = met.reason
            if not met.is_answer:
                refused_since = None
            elif refused_since is None:
                refused_since = clock()
            elif clock() - refused_since >= patience_seconds:
                raise UserError(met.reason, remedy)
            await asyncio.sleep(self._timing.retry_seconds)
        self.obstacle = ""

    async def keep(self, remedy: str = "") -> None:
        """Renew the Lease until cancelled. Raise UserError, with `remedy`, once another holder has acquired it."""
        await self._renew_until_lost()
        raise UserError(self.obstacle, remedy)

    async def lead(self, work: Callable[[Mapping[str, str]], Awaitable[None]]) -> None:
        """Run `work` whenever this process holds the Lease, until cancelled.

        `work` receives the annotations that the Lease had. It is cancelled when another holder has the Lease, or may
        have it because it was not renewed in time.
        """
        while True:
            await self.take()
            working = asyncio.ensure_future(work(self._found_notes))
            keeping = asyncio.create_task(self._renew_until_lost())
            try:
                await self._wait_while_sure(working, keeping)
            finally:
                for task in (working, keeping):
                    task.cancel()
                outcomes = await asyncio.gather(working, keeping, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome

    async def _wait_while_sure(self, *tasks: asyncio.Future[None]) -> None:
        """Return when a task ends, or when others may consider this holder dead.

        This deadline does not depend on the renewing task, which may be in a request when it passes.
        """
        clock = asyncio.get_running_loop().time
        while (left_seconds := self._renewed_at + self._timing.duration_seconds - clock()) > 0:
            done, _ = await asyncio.wait(tasks, timeout=left_seconds, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
        self.obstacle = f"{PLACE} was not renewed for {self._timing.duration_seconds} s"

    async def _renew_until_lost(self) -> None:
        """Renew the Lease until another holder has acquired it, which is then the obstacle."""
        pause = self._timing.renew_seconds
        while True:
            await asyncio.sleep(pause)
            met = await self._attempt(self._renew)
            if met is not None and met.holder:
                self.obstacle = met.reason
                return
            pause = self._timing.renew_seconds if met is None else self._timing.retry_seconds

    async def release(self) -> None:
        """Release the Lease, if held, so that another candidate need not wait. Best effort: else the Lease expires."""
        timeout_seconds = self._timing.request_seconds
        try:
            for _ in range(_RELEASES_MAX):
                found = await read(self._client, timeout_seconds)
                body = self._add_notes(found.build_released())
                if found.holder != self.identity or await write(self._client, body, timeout_seconds):
                    return
        except ApiError as error:
            self._failure.enter(f"cannot release {PLACE}: {error.describe(RIGHT)}")

    async def _attempt(self, step: Callable[[LeaseObject], Awaitable[_Obstacle | None]]) -> _Obstacle | None:
        try:
            met = await step(await read(self._client, self._timing.request_seconds))
        except ApiError as error:
            reason = f"cannot hold {PLACE}: {error.describe(RIGHT)}"
            self._failure.enter(reason)
            self.trouble = reason
            is_answer = isinstance(error, RefusedError) and error.status < _SERVER_ERROR and error.status != TOO_MANY
            if not is_answer:
                self._seen = None  # its holder may have been unable to renew it either
            return _Obstacle(reason, is_answer=is_answer)
        self._failure.leave()
        self.trouble = ""
        self._on_contact()
        return met

    async def _take(self, found: LeaseObject) -> _Obstacle | None:
        if self._lives(found):
            return _Obstacle(f"{PLACE} is held by {found.describe_holder()}", holder=found.holder)
        return await self._put_name(found)

    async def _renew(self, found: LeaseObject) -> _Obstacle | None:
        if found.holder not in {"", self.identity}:
            return _Obstacle(
                f"{PLACE} was not renewed in time, and is held by {found.describe_holder()}", holder=found.holder
            )
        return await self._put_name(found)

    async def _put_name(self, found: LeaseObject) -> _Obstacle | None:
        began_at = asyncio.get_running_loop().time()
        body = self._add_notes(found.build_held(self.identity, self._timing.duration_seconds))
        if await write(self._client, body, self._timing.request_seconds):
            self._renewed_at = began_at
            self._found_notes = found.whole["metadata"].get("annotations") or {}
            return None
        return _Obstacle(f"{PLACE} was changed by another writer at the same time")

    def _add_notes(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the Lease with this process's annotations added."""
        notes = self._notes()
        if not notes:
            return body
        metadata = body["metadata"]
        return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **notes}}}

    def _lives(self, found: LeaseObject) -> bool:
        """Return whether another holder has the Lease and may still be alive."""
        if found.holder in {"", self.identity} or (self._former is not None and found.holder.startswith(self._former)):
            return False
        now = asyncio.get_running_loop().time()
        self._seen = found.compare(self._seen, now)
        duration_seconds = found.spec.lease_duration_seconds or self._timing.duration_seconds
        return now - self._seen.since_seconds < duration_seconds
