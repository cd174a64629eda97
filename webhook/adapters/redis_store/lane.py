"""Lane: micro-batching of concurrent operations into one call of the script at a time.

Why each Pod asks Redis: docs/design/place-leases.md.

A running call is never cancelled: its answer would be taken for that of the next call on the connection. An operation
fails at its deadline, and until the late call has ended every other one fails at once. A late result goes to `on_late`,
and its charge to the error of the operation: Redis has carried it out. On a busy machine this process or Redis may not
run for longer than a deadline: then operations are given as much time again, so that they wait rather than fail.

A failed call takes the lane down: operations fail without touching the network, and one probe at a time is sent, with
exponential delays. A successful probe opens the lane; only a successful call resets the delays and ends the reported
failure, so that a probe that proves less than a call costs one failed call each time.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from webhook.adapters.redis_store import codec, error_classes
from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.adapters.redis_store.waiting_operations import Waiting, fail_all, take_patient, take_pending, tell_late
from webhook.errors import NoStoreAnswerError, StoreFailure, StoreFault, StoreUnavailableError
from webhook.ports import StoreReports
from webhook.ports.traces import REDIS, TimedCalls
from webhook.support.backoff import Backoff
from webhook.support.condition import Condition

_URGENT_MAX = 256
"""The most in one call: Redis serves no other client while a script runs."""
_PATIENT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 1.0
_CLOCK_SECONDS = 0.001
"""The resolution of the loop's clock, by which an alarm may be too early."""
_LATE_ALARM_SECONDS = 0.005
"""An alarm that is later shows that this process did not run: an answer may have arrived unread."""
_BUSY_SECONDS = 10.0
"""How long a late alarm shows that the machine is busy, so that Redis may not run either."""
_GRACE_MAX = 10
"""The most that operations are given beyond their timeout on a busy machine, as a multiple of it."""
_REPEAT_SECONDS = 10.0
"""After this time, the same error of single operations is reported again."""

OnLate = Callable[[ScriptOperation, Any], None]
"""Receives an operation with a result that came after its deadline."""


class OperationRunner(Protocol):
    """Executor of operations, such as `ScriptCaller`."""

    def run(self, operations: Sequence[ScriptOperation]) -> Awaitable[Sequence[Any]]:
        """Return the results in order; a string is the error of its operation."""

    async def probe(self, tag: str) -> None:
        """Return if calls would succeed; raise otherwise."""


class Lane:
    """Operations of one event loop for one node. Those of admissions are urgent; the others share their calls.

    A failure is reported once until its class changes, and once it is over; that of one operation takes nothing down.
    """

    def __init__(
        self, caller: OperationRunner, tag: str, deadline_seconds: float, reports: StoreReports, on_late: OnLate
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._caller = caller
        self.tag = tag
        self._deadline_seconds = deadline_seconds
        self._reports = reports
        self._on_late = on_late
        self._first: list[Waiting] = []
        """Operations that later ones rely on. They have no deadline."""
        self._urgent: list[Waiting] = []
        self._patient: list[Waiting] = []
        self._called: Sequence[Waiting] = ()
        """Operations of the running call."""
        self._alarm: asyncio.TimerHandle | None = None
        """Fires when the first operation is due, or before."""
        self._alarm_due = math.inf
        self._late_seconds = self._busy_until = 0.0
        """How late an alarm was, and until when that counts, by the loop's clock."""
        self._calling: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._called_at = 0.0
        self._called_ns = self._answered_ns = 0
        """When the last call began, and when the last one that was answered ended, by `perf_counter_ns`."""
        self._late = False
        self._down: StoreFailure | None = None
        """Why the lane is down; None if it is not."""
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX)
        self._failure = Condition(reports.on_trouble, reports.on_over, key=error_classes.fault_of)
        self._reported_at: dict[StoreFailure, float] = {}

    def ask(self, operation: ScriptOperation, *, is_patient: bool = False) -> "asyncio.Future[Any]":
        """Ask for the result of an operation, which is urgent unless it `is_patient`.

        NoStoreAnswerError at the deadline, or at once while the lane is down or a call is late.
        """
        loop, seconds, queue = self._loop, self._deadline_seconds, self._urgent
        if is_patient:
            seconds, queue = max(_PATIENT_SECONDS, seconds), self._patient
        future, now = loop.create_future(), loop.time()
        if self._down or self._late:
            late = StoreFailure(f"no answer for {now - self._called_at:.1f} s", StoreFault.TIMEOUT)
            future.set_exception(NoStoreAnswerError(*(self._down or late), sent=False))
            return future
        due = now + seconds
        queue.append((operation, future, due, seconds))
        if self._calling is None:
            self._start()
        if due < self._alarm_due:
            self._set_alarm(due)
        return future

    def ask_first(self, operation: ScriptOperation) -> "asyncio.Future[Any]":
        """Ask for the result of an operation that precedes all others of the next call, also while a call is late.

        NoStoreAnswerError when that call fails, or at once while the lane is down.
        """
        future = self._loop.create_future()
        if self._down:
            future.set_exception(NoStoreAnswerError(*self._down, sent=False))
        else:
            self._first.append((operation, future, math.inf, math.inf))
            if self._calling is None:
                self._start()
        return future

    async def ask_timed(self, operation: ScriptOperation, timed: TimedCalls, server: str) -> Any:
        """Ask as `ask` does; add the call to `server` that carried the operation, if there was one."""
        try:
            result = await self.ask(operation)
        except NoStoreAnswerError as error:
            if error.sent:
                timed.add(REDIS, self._called_ns, failure=error.failure, server=server, shared_by=len(self._called))
            raise
        # The next call begins only after all operations of this one have continued.
        timed.add(REDIS, self._called_ns, self._answered_ns, server=server, shared_by=len(self._called))
        return result

    def retire(self) -> None:
        """End the reported failure, and report no other; operations that were asked for still get their answers."""
        self._failure.leave()
        self._failure = Condition(lambda _: None, lambda _: None)
        if self._probing is not None:
            self._probing.cancel()

    async def close(self) -> None:
        """Stop probing, and wait for the running call."""
        if self._probing is not None:
            self._probing.cancel()
        under_way = [task for task in (self._calling, self._probing) if task is not None]
        if under_way:
            await asyncio.wait(under_way)

    def _start(self) -> None:
        """Start to call in the next turn of the loop: all operations of this turn share the first call."""
        self._calling = self._loop.create_task(self._call_all(), name="store-calls")

    def _set_alarm(self, due: float) -> None:
        """Check deadlines then: one alarm for all operations, which no result cancels."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_due = self._loop.call_at(due, self._check_deadlines), due

    def _check_deadlines(self) -> None:
        now = self._loop.time()
        asked_again = now + self._learn_lateness(now)
        self._alarm, self._alarm_due = None, math.inf
        next_due = math.inf
        for queue in (self._called, self._urgent, self._patient):
            for _, future, asked_due, seconds in queue:
                if future.done():
                    continue
                due = min(max(asked_due + 2 * self._late_seconds, asked_again), asked_due + _GRACE_MAX * seconds)
                if due <= now + _CLOCK_SECONDS:
                    failure = StoreFailure(f"no answer within {seconds * 1000:g} ms", StoreFault.TIMEOUT)
                    sent = queue is self._called
                    charged_us = self._loop.create_future() if sent else None
                    future.set_exception(NoStoreAnswerError(*failure, sent=sent, charged_us=charged_us))
                    self._late = True
                    self._failure.enter(failure)
                else:
                    next_due = min(next_due, due)
        if next_due < math.inf:
            self._set_alarm(next_due)

    def _learn_lateness(self, now: float) -> float:
        """Return how late the alarm is, 0 if it is on time; the largest such time counts for a while."""
        late_seconds = now - self._alarm_due
        if late_seconds <= _LATE_ALARM_SECONDS:
            late_seconds = 0.0
        if late_seconds >= self._late_seconds or now >= self._busy_until:
            self._late_seconds, self._busy_until = late_seconds, now + _BUSY_SECONDS
        return late_seconds

    async def _call_all(self) -> None:
        try:
            while batch := self._next_batch():
                self._called, self._called_at = batch, self._loop.time()
                self._called_ns = perf_counter_ns()
                await self._call(batch)
                await asyncio.sleep(0)  # callers learn from their results, such as which breakers are open
                self._late = False
                await asyncio.sleep(0)  # and their tasks enqueue what undoes charges, for the next call
        finally:
            self._calling, self._called, self._late = None, (), False

    def _next_batch(self) -> Sequence[Waiting]:
        """Remove and return the operations of the next call."""
        urgent = self._urgent
        if not (self._first or self._patient) and len(urgent) <= _URGENT_MAX:
            for _, future, _, _ in urgent:
                if future.done():
                    break
            else:  # the usual case: the whole list is the batch
                self._urgent = []
                return urgent
        first, patient = take_pending(self._first, _URGENT_MAX), take_patient(self._patient)
        return [*first, *take_pending(urgent, _URGENT_MAX), *patient]

    async def _call(self, batch: Sequence[Waiting]) -> None:
        try:
            results = await self._caller.run([waiting[0] for waiting in batch])
            self._answered_ns = perf_counter_ns()
        except Exception as error:  # noqa: BLE001  a defect must neither leave callers waiting nor end the task
            if error_classes.is_of_the_store(error):
                self._take_down(error_classes.described(error), batch)
            elif isinstance(error, StoreUnavailableError):
                self._take_down(error.failure, batch)
            else:
                self._fail(StoreFailure(repr(error), StoreFault.SCRIPT), batch)
            return
        try:
            self._settle(batch, results)
        except Exception as error:  # noqa: BLE001  as above, such as a result that cannot be read
            self._fail(StoreFailure(repr(error), StoreFault.SCRIPT), batch)

    def _settle(self, batch: Sequence[Waiting], results: Sequence[Any]) -> None:
        """Deliver the results. An error fails only its operation, unless it shows that the whole server fails."""
        server_failure: StoreFailure | None = None
        for (operation, future, due, seconds), result in zip(batch, results, strict=True):
            if isinstance(result, str):
                is_the_servers, failure = error_classes.described_result(result)
                failed = [(operation, future, due, seconds)]
                if is_the_servers:
                    server_failure = failure
                    fail_all(failed, failure, sent=True)
                else:
                    self._fail(failure, failed)
            elif future.done():
                self._on_late(operation, result)
                tell_late(future, codec.find_charge_time(operation.name, result))
            else:
                future.set_result(result)
        if server_failure:
            self._take_down(server_failure, [])
        else:
            self._backoff.reset()
            self._failure.leave()
            self._reports.on_contact()

    def _fail(self, failure: StoreFailure, batch: Sequence[Waiting]) -> None:
        """Fail only these operations."""
        fail_all(batch, failure, sent=True)
        now = self._loop.time()
        self._reported_at = {reported: at for reported, at in self._reported_at.items() if now - at < _REPEAT_SECONDS}
        if failure not in self._reported_at:
            self._reported_at[failure] = now
            self._reports.report_single(failure)

    def _take_down(self, failure: StoreFailure, batch: Sequence[Waiting]) -> None:
        """Fail all operations, and new ones until a probe succeeds."""
        self._down = failure
        self._failure.enter(failure)
        fail_all(batch, failure, sent=True)
        fail_all((*self._first, *self._urgent, *self._patient), failure, sent=False)
        for queue in (self._first, self._urgent, self._patient):
            queue.clear()
        if self._probing is None:
            self._probing = self._loop.create_task(self._probe_until_open(), name="store-probe")

    async def _probe_until_open(self) -> None:
        try:
            while self._down:
                await asyncio.sleep(self._backoff.next_seconds())
                try:
                    await self._caller.probe(self.tag)
                except Exception as error:  # noqa: BLE001  retried after every failure
                    self._down = error_classes.described(error)
                    self._failure.enter(self._down)
                else:
                    self._down = None
        finally:
            self._probing = None
