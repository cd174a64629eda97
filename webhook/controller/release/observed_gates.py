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
_OUTAGE_US = 30_000_000
"""After so long one call at a time is begun: a proxy may answer calls and no pings."""
_RECOVERY_US = 5_000_000
"""Between recoveries: pings that are lost now and then must not have failing Pods tried again and again."""


class ObservedGates:
    """The calls of a `GateClient`, with what their latest answers tell of the API server."""

    def __init__(self, gates: GateClient, now_us: Callable[[], int]) -> None:
        self._gates = gates
        self._now_us = now_us
        self.answered_us = 0
        """When the API server last answered a call, or was sent a ping that it answered soon."""
        self.heard_us = 0
        """When it last gave any answer."""
        self.stalled_us = 0
        """When it last gave one after a ping was late or lost."""
        self.recovered_us = 0
        """When it last gave one after a ping was lost."""
        self.outage_us = 0
        """Its last answer before that."""
        self._doubted_us: int | None = None
        """Since when a call has failed, and nothing had an answer."""
        self._lost_us: int | None = None
        """Since when pings have no answer, and nothing else had one."""
        self._are_pings_answered = True
        """Whether the last ping had an answer, or no call had one since."""
        self._has_recovered = False
        self._pinged_us = 0
        self._pinging: asyncio.Task[None] | None = None

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        return await self._observe(self._gates.remove(namespace, name, uid))

    async def delete(self, namespace: str, name: str, uid: str) -> bool:
        return await self._observe(self._gates.delete(namespace, name, uid))

    @property
    def is_in_doubt(self) -> bool:
        """Whether a call had no answer, and nothing else had one since."""
        return self._doubted_us is not None

    def bound_calls(self, wanted: int) -> int:
        """Return how many calls should be begun: none while the API server answers nobody.

        Else each service would have charged Pods by the time that it answers again, in no order.
        """
        now_us = self._now_us()
        if self._lost_us is not None and self._are_pings_answered:
            return 0 if 0 <= now_us - self._lost_us < _OUTAGE_US else min(wanted, 1)
        is_awaited = self._doubted_us is not None and 0 <= now_us - self._doubted_us < _SOON_US
        return 0 if is_awaited and self._are_pings_answered else wanted

    def ping(self) -> None:
        """Ping the API server, unless a ping is under way, or had no answer a moment ago."""
        now_us = self._now_us()
        is_pausing = self._lost_us is not None and 0 <= now_us - self._pinged_us < _PAUSE_US
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

    async def _observe(self, call: Awaitable[bool]) -> bool:
        try:
            is_there = await call
        except GateError as error:
            if error.is_refused:
                self._note_call()
            else:
                self._doubted_us = self._now_us() if self._doubted_us is None else self._doubted_us
                self.ping()
            raise
        self._note_call()
        return is_there

    async def _ping(self, begun_us: int) -> None:
        try:
            is_reached = await self._gates.is_reachable()
        finally:
            self._pinging = None
        now_us = self._now_us()
        if not is_reached:
            self._lost_us = now_us if self._lost_us is None else self._lost_us
            return
        self._are_pings_answered = True
        if now_us - begun_us <= _SOON_US:
            self.answered_us = begun_us
        else:
            self.stalled_us = now_us
        self._note_answer(now_us)

    def _note_call(self) -> None:
        self.answered_us = now_us = self._now_us()
        if self._pinging is not None and now_us - self._pinged_us > _SOON_US:
            self.stalled_us = now_us
        if self._lost_us is not None:
            self._are_pings_answered = False
            self.ping()
        self._note_answer(now_us)

    def _note_answer(self, now_us: int) -> None:
        if self._lost_us is not None and not 0 <= now_us - self.recovered_us < _RECOVERY_US:
            self.outage_us, self.recovered_us, self.stalled_us = self.heard_us, now_us, now_us
            self._has_recovered = True
        self.heard_us, self._doubted_us, self._lost_us = now_us, None, None
