"""A lane: one call at a time, and what is asked meanwhile travels in the next; while the lane is down nobody waits.

A call that is under way is never cancelled: its answer would be taken for that of the next one on its connection. Who
has waited long enough leaves, and until the late call has ended everybody else leaves at once. A result that comes when
nobody waits for it any more is `left` to whoever made the lane: what it did is done.

A call that fails takes the lane down: whatever is asked is refused at once without touching the network, and a single
probe at a time goes out, with pauses that double from 50 ms to 1 s and differ from replica to replica. Its success
opens the lane, and a call's success ends the trouble: a probe that says less than a call costs one call each time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.adapters.redis_store import error_classes
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import WatchReports
from webhook.store.errors import NoStoreAnswerError

# Redis serves nobody else while a script runs; and an admission should not wait long for what nobody waits for.
_URGENT_MAX = 256
_PATIENT_MAX = 64
_PATIENT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_SAME_AGAIN_SECONDS = 10.0
"""An operation that fails by itself is told again after this long."""


class ScriptOperation(NamedTuple):
    """One operation of a call: its keys, and all that the script must know of it. `strings`: which keys hold one."""

    plan: CounterPlan
    keys: tuple[str, ...]
    request: Sequence[Any]
    strings: tuple[int, ...] = ()


Send = Callable[[Sequence[ScriptOperation]], Awaitable[Sequence[Any]]]
"""Carries operations out in one call, results in the same order; one that is a text is the error of its operation."""

Left = Callable[[ScriptOperation, Any], None]
"""Hears of an operation's result that came too late for whoever asked."""

Probe = Callable[[], Awaitable[None]]
"""Returns where calls would succeed. It should need all that they need: one that writes also finds a full disk."""


@dataclass(slots=True)
class _Asked:
    operation: ScriptOperation
    future: "asyncio.Future[Any]"
    sent: bool = False

    def fail(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(NoStoreAnswerError(reason, sent=self.sent))


class Lane:
    """Gathers operations of one event loop. Admissions are urgent; whatever else there is fills up.

    Troubles are told in the words of `troubles`: once until the word is another, and over once. One of a single
    operation, `script: ...`, leaves the lane as it is, and is never told to be over.
    """

    def __init__(self, send: Send, probe: Probe, deadline_seconds: float, reports: WatchReports, left: Left) -> None:
        self._send = send
        self._left = left
        self._probe = probe
        self._reports = reports
        self._deadline_seconds = deadline_seconds
        self._urgent: list[_Asked] = []
        self._patient: list[_Asked] = []
        self._calling: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._called_at = 0.0
        self._late = False
        self._down = ""
        """Why whatever is asked is refused; "" where it is not."""
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._trouble = ""
        self._told: dict[str, float] = {}

    async def ask(self, operation: ScriptOperation) -> Any:
        """Return the operation's result; NoAnswerError at the deadline, or at once while the lane is down or late."""
        return await self._asked(self._urgent, operation, self._deadline_seconds)

    async def ask_patiently(self, operation: ScriptOperation) -> Any:
        """Return the operation's result, some time; NoAnswerError after seconds, or while the lane is down or late."""
        return await self._asked(self._patient, operation, max(_PATIENT_SECONDS, self._deadline_seconds))

    async def close(self) -> None:
        """Let the call under way end; probe no more."""
        if self._probing is not None:
            self._probing.cancel()
        under_way = [task for task in (self._calling, self._probing) if task is not None]
        if under_way:
            await asyncio.wait(under_way)

    async def _asked(self, waiting: list[_Asked], operation: ScriptOperation, seconds: float) -> Any:
        if self._down:
            raise NoStoreAnswerError(self._down, sent=False)
        loop = asyncio.get_running_loop()
        if self._late:
            waited_seconds = loop.time() - self._called_at
            raise NoStoreAnswerError(f"{error_classes.TIMEOUT}: no answer for {waited_seconds:.1f} s", sent=False)
        asked = _Asked(operation, loop.create_future())
        waiting.append(asked)
        if self._calling is None:
            # What else is asked in this turn of the loop comes along: the task begins in the next.
            self._calling = asyncio.create_task(self._call_all(), name="store-calls")
        alarm = loop.call_later(seconds, self._give_up, asked, seconds)
        try:
            return await asked.future
        finally:
            alarm.cancel()

    def _give_up(self, asked: _Asked, seconds: float) -> None:
        if not asked.future.done():
            reason = f"{error_classes.TIMEOUT}: no answer within {seconds * 1000:g} ms"
            asked.fail(reason)
            self._late = True
            self._tell(reason)

    async def _call_all(self) -> None:
        try:
            while batch := [*_taken(self._urgent, _URGENT_MAX), *_taken(self._patient, _PATIENT_MAX)]:
                self._called_at = asyncio.get_running_loop().time()
                await self._call(batch)
                self._late = False
        finally:
            self._calling, self._late = None, False

    async def _call(self, batch: Sequence[_Asked]) -> None:
        for asked in batch:
            asked.sent = True
        try:
            results = await self._send([asked.operation for asked in batch])
        except Exception as error:  # noqa: BLE001  a defect of ours must not let them wait, nor end the calls to come
            if error_classes.is_of_the_store(error):
                self._fall(error_classes.described(error), batch)
            elif isinstance(error, StoreUnavailableError):
                self._fall(str(error), batch)
            else:
                self._broken(f"{error_classes.SCRIPT}: {error!r}", batch)
            return
        self._settle(batch, results)

    def _settle(self, batch: Sequence[_Asked], results: Sequence[Any]) -> None:
        """Hand the results out. An error of one operation is its own, unless the whole server speaks by it."""
        fallen = ""
        for asked, result in zip(batch, results, strict=True):
            if not isinstance(result, str):
                if asked.future.done():
                    self._left(asked.operation, result)
                else:
                    asked.future.set_result(result)
                continue
            is_the_servers, reason = error_classes.described_result(result)
            fallen = reason if is_the_servers else fallen
            self._broken(reason, [asked]) if not is_the_servers else asked.fail(reason)
        if fallen:
            self._fall(fallen, [])
        else:
            self._recovered()

    def _recovered(self) -> None:
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            self._reports.on_over(trouble)
        self._reports.on_contact()

    def _tell(self, reason: str) -> None:
        if error_classes.word(reason) == error_classes.word(self._trouble):
            return
        if self._trouble:
            self._reports.on_over(self._trouble)
        self._trouble = reason
        self._reports.on_trouble(reason)

    def _broken(self, reason: str, asked: Sequence[_Asked]) -> None:
        for one in asked:
            one.fail(reason)
        now = asyncio.get_running_loop().time()
        self._told = {text: at for text, at in self._told.items() if now - at < _SAME_AGAIN_SECONDS}
        if reason not in self._told:
            self._told[reason] = now
            self._reports.on_trouble(reason)

    def _fall(self, reason: str, asked: Sequence[_Asked]) -> None:
        """Take the lane down: nobody waits any more, and nobody comes in before a probe has succeeded."""
        self._down = reason
        self._tell(reason)
        for one in (*asked, *self._urgent, *self._patient):
            one.fail(reason)
        self._urgent.clear()
        self._patient.clear()
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe_until_open(), name="store-probe")

    async def _probe_until_open(self) -> None:
        try:
            while self._down:
                await asyncio.sleep(self._pause_seconds * random.uniform(0.5, 1))  # noqa: S311  it guards nothing
                # Halved by a call's success alone: a lane that opens and falls again is tried ever more seldom.
                self._pause_seconds = min(self._pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
                try:
                    await self._probe()
                except Exception as error:  # noqa: BLE001  whatever is wrong with it, it is tried again
                    self._down = error_classes.described(error)
                    self._tell(self._down)
                else:
                    self._down = ""
        finally:
            self._probing = None


def _taken(waiting: list[_Asked], most: int) -> list[_Asked]:
    """Take the first ones out; who has left in the meantime is not asked for."""
    staying = [asked for asked in waiting if not asked.future.done()]
    waiting[:] = staying[most:]
    return staying[:most]
