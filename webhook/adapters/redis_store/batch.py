"""One call at a time; what is asked meanwhile travels in the next. Who has waited long enough leaves, the call goes on.

A call that is under way is never cancelled: its answer would be taken for that of the next one on its connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError

# Redis serves nobody else while a script runs; and an admission should not wait long for what nobody waits for.
_URGENT_MAX = 256
_PATIENT_MAX = 64
_PATIENT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a call: its keys, and all that the script must know of it."""

    plan: CounterPlan
    keys: tuple[str, ...]
    request: Sequence[Any]


Send = Callable[[Sequence[Operation]], Awaitable[Sequence[Any]]]
"""Carries operations out in one call; StoreUnavailableError where that fails."""


Asked = tuple[Operation, "asyncio.Future[Any]"]


class Batch:
    """Gathers operations of one event loop. Admissions are urgent; whatever else there is fills up."""

    def __init__(self, send: Send, deadline_seconds: float, on_late: Callable[[str], None]) -> None:
        self._send = send
        self._on_late = on_late
        self._deadline_seconds = deadline_seconds
        self._urgent: list[Asked] = []
        self._patient: list[Asked] = []
        self._calling: asyncio.Task[None] | None = None
        self._called_at = 0.0
        self._late = False

    async def ask(self, operation: Operation) -> Any:
        """Return the operation's result; StoreUnavailableError at the deadline, or at once while a call is late."""
        return await self._asked(self._urgent, operation, self._deadline_seconds)

    async def ask_patiently(self, operation: Operation) -> Any:
        """Return the operation's result, some time; StoreUnavailableError after seconds, or while a call is late."""
        return await self._asked(self._patient, operation, max(_PATIENT_SECONDS, self._deadline_seconds))

    async def close(self) -> None:
        """Let the call under way end."""
        if self._calling is not None:
            await asyncio.wait([self._calling])

    async def _asked(self, waiting: list[Asked], operation: Operation, seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        if self._late:
            raise StoreUnavailableError(f"no answer for {loop.time() - self._called_at:.1f} s")
        future: asyncio.Future[Any] = loop.create_future()
        waiting.append((operation, future))
        if self._calling is None:
            # What else is asked in this turn of the loop comes along: the task begins in the next.
            self._calling = asyncio.create_task(self._call_all(), name="store-calls")
        alarm = loop.call_later(seconds, self._give_up, future, seconds)
        try:
            return await future
        finally:
            alarm.cancel()

    def _give_up(self, future: "asyncio.Future[Any]", seconds: float) -> None:
        if not future.done():
            reason = f"no answer within {seconds * 1000:g} ms"
            future.set_exception(StoreUnavailableError(reason))
            if not self._late:
                self._late = True
                self._on_late(reason)

    async def _call_all(self) -> None:
        try:
            while batch := [*_taken(self._urgent, _URGENT_MAX), *_taken(self._patient, _PATIENT_MAX)]:
                self._called_at = asyncio.get_running_loop().time()
                await self._call(batch)
                self._late = False
        finally:
            self._calling, self._late = None, False

    async def _call(self, batch: Sequence[Asked]) -> None:
        try:
            results = await self._send([operation for operation, _ in batch])
        except Exception as error:  # noqa: BLE001  a defect of ours must not let them wait, nor end the calls to come
            reason = str(error) if isinstance(error, StoreUnavailableError) else repr(error)
            for _, future in batch:
                if not future.done():
                    future.set_exception(StoreUnavailableError(reason))
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)


def _taken(waiting: list[Asked], most: int) -> list[Asked]:
    """Take the first ones out; who has left in the meantime is not asked for."""
    staying = [asked for asked in waiting if not asked[1].done()]
    waiting[:] = staying[most:]
    return staying[:most]
