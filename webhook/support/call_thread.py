"""Call thread: runs steps of calls beside the event loop, and skips those whose caller has gone before they begin.

A caller that gives up closes its connection. What it asked for must not delay others, nor count as a call in flight. A
step that has begun runs to its end: nothing is interrupted in its middle.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class CallerGoneError(Exception):
    """Nobody waits for the result of a step any more, and it has not begun."""


class _Step(Generic[_T]):
    """A step that waits for the thread."""

    def __init__(self, work: Callable[..., _T], arguments: tuple[object, ...]) -> None:
        self._work = work
        self._arguments = arguments

    def __call__(self) -> _T:
        return self._work(*self._arguments)

    def drop(self) -> None:
        """Forget the arguments of a step that is not run: the thread's queue holds it for a while."""
        self._arguments = ()


class WaitingCaller:
    """Whether the caller of a call is there, and the step of the call that waits for the thread."""

    __slots__ = ("_step", "_submitted", "is_gone")

    def __init__(self) -> None:
        self.is_gone = False
        self._step: _Step[Any] | None = None
        self._submitted: Future[Any] | None = None

    def leave(self) -> None:
        """Note that the caller has gone, and skip the step that waits."""
        self.is_gone = True
        if self._step is not None and self._submitted is not None and self._submitted.cancel():
            self._step.drop()

    async def wait_for(self, step: _Step[_T], executor: ThreadPoolExecutor) -> _T:
        """Return what a step returns. CallerGoneError: it was skipped."""
        if self.is_gone:
            raise CallerGoneError("the caller has gone")
        self._step, self._submitted = step, executor.submit(step)
        try:
            return await asyncio.wrap_future(self._submitted)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.is_gone and task is not None and not task.cancelling():
                raise CallerGoneError("the caller has gone") from None
            raise
        finally:
            self._step = self._submitted = None


waiting_caller: ContextVar[WaitingCaller | None] = ContextVar("waiting_caller", default=None)
"""Set by the server for the calls of a connection; without it every step is run."""


class CallThread:
    """One thread for steps of calls, in order."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    def run(self, work: Callable[..., _T], *arguments: object) -> Awaitable[_T]:
        """Return what to wait for: the result of `work`. CallerGoneError: the caller has gone before it began."""
        caller = waiting_caller.get()
        if caller is None:
            return asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
        return caller.wait_for(_Step(work, arguments), self._executor)
