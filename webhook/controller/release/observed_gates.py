"""Gates of waiting Pods, and whether the API server answers: calls, and pings while calls have no answer.

That a call has no answer says something of its namespace, as of a webhook there, only if the API server answers others.
"""

import asyncio
from collections.abc import Awaitable, Callable

from webhook.errors import GateError
from webhook.ports import GateClient

_SOON_US = 300_000
"""A later answer to a ping tells of an API server, or of a machine, that gives nobody an answer."""
_PAUSE_US = 200_000
"""Between pings while they have no answer."""


class ObservedGates:
    """A `GateClient` of another one, with what its latest answers tell of the API server."""

    def __init__(self, gates: GateClient, now_us: Callable[[], int]) -> None:
        self._gates = gates
        self._now_us = now_us
        self.answered_us = 0
        """When the API server last answered a call, or was sent a ping that it answered soon."""
        self.recovered_us = 0
        """When it answered again after a ping had no answer."""
        self.stalled_us = 0
        """When it last answered after a ping was late."""
        self.is_in_doubt = False
        """Whether a call had no answer, and nothing else had one since."""
        self._is_lost = False
        """Whether the last ping had no answer."""
        self._has_recovered = False
        self._pinged_us = 0
        self._pinging: asyncio.Task[None] | None = None

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        return await self._observe(self._gates.remove(namespace, name, uid))

    async def delete(self, namespace: str, name: str, uid: str) -> bool:
        return await self._observe(self._gates.delete(namespace, name, uid))

    async def is_reachable(self) -> bool:
        return await self._gates.is_reachable()

    async def _observe(self, call: Awaitable[bool]) -> bool:
        try:
            is_there = await call
        except GateError as error:
            if error.is_refused:
                self._note_alive(self._now_us())
            else:
                self.is_in_doubt = True
                self.ping()
            raise
        self._note_alive(self._now_us())
        return is_there

    def ping(self) -> None:
        """Ping the API server, unless a ping is under way, or had no answer a moment ago."""
        now_us = self._now_us()
        is_pausing = self._is_lost and 0 <= now_us - self._pinged_us < _PAUSE_US
        if self._pinging is None and not is_pausing:
            self._pinged_us = now_us
            self._pinging = asyncio.create_task(self._ping(now_us))

    def take_recovery(self) -> bool:
        """Return whether the API server has recovered since the last call of this."""
        has_recovered, self._has_recovered = self._has_recovered, False
        return has_recovered

    def cancel(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()

    async def _ping(self, begun_us: int) -> None:
        try:
            is_reached = await self.is_reachable()
        finally:
            self._pinging = None
        if not is_reached:
            self._is_lost = True
        elif self._now_us() - begun_us <= _SOON_US:
            self._note_alive(begun_us)
        else:
            self.stalled_us, self.is_in_doubt = self._now_us(), False

    def _note_alive(self, at_us: int) -> None:
        now_us = self._now_us()
        self.answered_us, self.is_in_doubt = at_us, False
        if self._pinging is not None and now_us - self._pinged_us > _SOON_US:
            self.stalled_us = now_us
        if self._is_lost:
            self._is_lost, self.recovered_us, self.stalled_us = False, now_us, now_us
            self._has_recovered = True
