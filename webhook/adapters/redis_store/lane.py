"""Lane: micro-batching of concurrent operations into one call of the script at a time.

A running call is never cancelled: its answer would be taken for that of the next call on the connection. An operation
fails at its deadline, and until the late call has ended every other one fails at once. A late result goes to `on_late`:
Redis has carried it out.

A failed call takes the lane down: operations fail without touching the network, and one probe at a time is sent, with
exponential delays. A successful probe opens the lane; only a successful call resets the delays and ends the reported
failure, so that a probe that proves less than a call costs one failed call each time.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from webhook.adapters.redis_store import error_classes
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.ports import WatchReports
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

# Redis serves no other client while a script runs, and admissions should not wait for operations that are not urgent.
_URGENT_MAX = 256
_PATIENT_MAX = 64
_PATIENT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_CLOCK_SECONDS = 0.001
"""The resolution of the loop's clock: an alarm may be so much too early."""
_SAME_AGAIN_SECONDS = 10.0
"""The same error of single operations is reported again after this long."""

OnLate = Callable[[ScriptOperation, Any], None]
"""Receives an operation with a result that came after its deadline."""


class OperationRunner(Protocol):
    """Executor of operations, such as `ScriptCaller`."""

    async def run(self, operations: Sequence[ScriptOperation]) -> Sequence[Any]:
        """Return the results in order; a string is the error of its operation."""

    async def probe(self, tag: str) -> None:
        """Return if calls would succeed; raise otherwise."""


@dataclass(slots=True)
class _Waiting:
    operation: ScriptOperation
    future: "asyncio.Future[Any]"
    seconds: float
    due: float
    """When it fails, by the loop's clock."""
    sent: bool = False

    def fail(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(NoStoreAnswerError(reason, sent=self.sent))


class Lane:
    """Operations of one event loop for one node. Those of admissions are urgent; the others share their calls.

    A failure is reported with a reason of `error_classes`: once until its class changes, and once when it is over. A
    failure of a single operation, `script: ...`, does not take the lane down, and its end is not reported.
    """

    def __init__(
        self, caller: OperationRunner, tag: str, deadline_seconds: float, reports: WatchReports, on_late: OnLate
    ) -> None:
        self._caller = caller
        self._tag = tag
        self._deadline_seconds = deadline_seconds
        self._reports = reports
        self._on_late = on_late
        self._urgent: list[_Waiting] = []
        self._patient: list[_Waiting] = []
        self._called: Sequence[_Waiting] = ()
        """Those of the running call."""
        self._alarm: asyncio.TimerHandle | None = None
        """Fires when the first operation is due, or before."""
        self._alarm_due = math.inf
        self._calling: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._called_at = 0.0
        self._late = False
        self._down = ""
        """Why the lane is down; "" if it is not."""
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._failure = Condition(reports.on_trouble, reports.on_over, key=error_classes.word)
        self._reported_at: dict[str, float] = {}

    async def ask(self, operation: ScriptOperation) -> Any:
        """Return the result of an urgent operation.

        NoStoreAnswerError at the deadline, or at once while the lane is down or a call is late.
        """
        return await self._asked(self._urgent, operation, self._deadline_seconds)

    async def ask_patiently(self, operation: ScriptOperation) -> Any:
        """Return the result; NoStoreAnswerError after seconds, or at once while the lane is down or a call is late."""
        return await self._asked(self._patient, operation, max(_PATIENT_SECONDS, self._deadline_seconds))

    async def close(self) -> None:
        """Stop probing, and wait for the running call."""
        if self._probing is not None:
            self._probing.cancel()
        under_way = [task for task in (self._calling, self._probing) if task is not None]
        if under_way:
            await asyncio.wait(under_way)

    async def _asked(self, queue: list[_Waiting], operation: ScriptOperation, seconds: float) -> Any:
        if self._down:
            raise NoStoreAnswerError(self._down, sent=False)
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._late:
            raise NoStoreAnswerError(
                f"{error_classes.TIMEOUT}: no answer for {now - self._called_at:.1f} s", sent=False
            )
        waiting = _Waiting(operation, loop.create_future(), seconds, now + seconds)
        queue.append(waiting)
        if self._calling is None:
            # The task starts in the next turn of the loop: all operations of this turn share its first call.
            self._calling = asyncio.create_task(self._call_all(), name="store-calls")
        if waiting.due < self._alarm_due:
            self._set_alarm(waiting.due)
        return await waiting.future

    def _set_alarm(self, due: float) -> None:
        """Check deadlines then. One alarm for all operations, which no result cancels, saves 1 us of each."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_due = asyncio.get_running_loop().call_at(due, self._check_deadlines), due

    def _check_deadlines(self) -> None:
        self._alarm, self._alarm_due = None, math.inf
        now = asyncio.get_running_loop().time()
        pending = [one for one in (*self._called, *self._urgent, *self._patient) if not one.future.done()]
        for waiting in pending:
            if waiting.due <= now + _CLOCK_SECONDS:
                self._give_up(waiting)
        due = min((waiting.due for waiting in pending if not waiting.future.done()), default=math.inf)
        if due < math.inf:
            self._set_alarm(due)

    def _give_up(self, waiting: _Waiting) -> None:
        reason = f"{error_classes.TIMEOUT}: no answer within {waiting.seconds * 1000:g} ms"
        waiting.fail(reason)
        self._late = True
        self._failure.enter(reason)

    async def _call_all(self) -> None:
        try:
            while batch := [*_taken(self._urgent, _URGENT_MAX), *_taken(self._patient, _PATIENT_MAX)]:
                self._called, self._called_at = batch, asyncio.get_running_loop().time()
                await self._call(batch)
                self._late = False
                await asyncio.sleep(0)  # callers learn from their results, such as which breakers are open
        finally:
            self._calling, self._called, self._late = None, (), False

    async def _call(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            waiting.sent = True
        try:
            results = await self._caller.run([waiting.operation for waiting in batch])
        except Exception as error:  # noqa: BLE001  a defect must neither leave callers waiting nor end the task
            if error_classes.is_of_the_store(error):
                self._take_down(error_classes.described(error), batch)
            elif isinstance(error, StoreUnavailableError):
                self._take_down(str(error), batch)
            else:
                self._fail(f"{error_classes.SCRIPT}: {error!r}", batch)
            return
        self._settle(batch, results)

    def _settle(self, batch: Sequence[_Waiting], results: Sequence[Any]) -> None:
        """Deliver the results. An error fails only its operation, unless it shows that the whole server fails."""
        server_failure = ""
        for waiting, result in zip(batch, results, strict=True):
            if not isinstance(result, str):
                if waiting.future.done():
                    self._on_late(waiting.operation, result)
                else:
                    waiting.future.set_result(result)
                continue
            is_the_servers, reason = error_classes.described_result(result)
            if is_the_servers:
                server_failure = reason
                waiting.fail(reason)
            else:
                self._fail(reason, [waiting])
        if server_failure:
            self._take_down(server_failure, [])
        else:
            self._backoff.reset()
            self._failure.leave()
            self._reports.on_contact()

    def _fail(self, reason: str, batch: Sequence[_Waiting]) -> None:
        """Fail only these operations."""
        for waiting in batch:
            waiting.fail(reason)
        now = asyncio.get_running_loop().time()
        self._reported_at = {text: at for text, at in self._reported_at.items() if now - at < _SAME_AGAIN_SECONDS}
        if reason not in self._reported_at:
            self._reported_at[reason] = now
            self._reports.on_trouble(reason)

    def _take_down(self, reason: str, batch: Sequence[_Waiting]) -> None:
        """Fail all operations, and new ones until a probe succeeds."""
        self._down = reason
        self._failure.enter(reason)
        for waiting in (*batch, *self._urgent, *self._patient):
            waiting.fail(reason)
        self._urgent.clear()
        self._patient.clear()
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe_until_open(), name="store-probe")

    async def _probe_until_open(self) -> None:
        try:
            while self._down:
                await asyncio.sleep(self._backoff.next_seconds())
                try:
                    await self._caller.probe(self._tag)
                except Exception as error:  # noqa: BLE001  retried after every failure
                    self._down = error_classes.described(error)
                    self._failure.enter(self._down)
                else:
                    self._down = ""
        finally:
            self._probing = None


def _taken(queue: list[_Waiting], most: int) -> list[_Waiting]:
    """Remove and return the first ones, without those that have timed out."""
    pending = [waiting for waiting in queue if not waiting.future.done()]
    queue[:] = pending[most:]
    return pending[:most]


class Lanes:
    """One lane per node; `name_of` returns the node of a tag, which may change."""

    def __init__(
        self,
        name_of: Callable[[str], str],
        caller: OperationRunner,
        deadline_seconds: float,
        reports: WatchReports,
        on_late: OnLate,
    ) -> None:
        self._name_of = name_of
        self._caller = caller
        self._deadline_seconds = deadline_seconds
        self._reports = reports
        self._on_late = on_late
        self._lanes: dict[str, Lane] = {}

    def of(self, tag: str) -> Lane:
        name = self._name_of(tag)
        lane = self._lanes.get(name)
        if lane is None:
            lane = Lane(self._caller, tag, self._deadline_seconds, self._reports, self._on_late)
            self._lanes[name] = lane
        return lane

    async def ask_patiently(self, operation: ScriptOperation) -> Any:
        return await self.of(operation.planned.plan.tag).ask_patiently(operation)

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
