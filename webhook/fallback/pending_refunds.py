"""PendingRefunds: charges that the store has made, or may have made, for Pods that this replica has denied."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, NamedTuple

from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import NoStoreAnswerError, StoreUnavailableError
from webhook.fallback.backlog import ServiceKey
from webhook.ports import SharedStore

PENDING_MAX = 10_000
"""Per service; a wrong charge beyond it is refunded by the controller, or leaves with its window."""

_REFUNDS_PER_ROUND_MAX = 64


class _Pending(NamedTuple):
    """A charge to withdraw: its time by the store's clock if it is known, and when it is due by the loop's clock.

    `due` is None while the store is unavailable.
    """

    request: Acquire
    charged_us: int | None
    due: float | None


class PendingRefunds:
    """By service and uid.

    - If the answer is late, it says whether there is anything to withdraw; the store's next call does that first.
    - If no answer will come, the call may still be carried out: the charge is withdrawn `delay_seconds` after the store
      is first seen to answer again.

    The store answers or fails one call at a time, so few answers are waited for at any time.
    """

    def __init__(self, store: SharedStore, delay_seconds: float, on_withdrawn: Callable[[CounterPlan], None]) -> None:
        self._store = store
        self._delay_seconds = delay_seconds
        self._on_withdrawn = on_withdrawn
        self._pending: dict[ServiceKey, dict[str, _Pending]] = {}
        self._tasks: dict[asyncio.Task[bool], tuple[ServiceKey, str]] = {}
        """Those that wait for a late answer, or are being sent."""

    def __bool__(self) -> bool:
        return bool(self._pending or self._tasks)

    def list_keys(self) -> Collection[ServiceKey]:
        """Return the services that have pending refunds."""
        return self._pending.keys()

    def follow(self, request: Acquire, error: NoStoreAnswerError) -> None:
        """Withdraw the charge of an Acquire that failed with `error`."""
        if error.charged_us is None:
            self.add(request)
        else:
            self._start(self._send_late(request, error.charged_us), request)

    def send(self, request: Acquire, charged_us: int) -> None:
        """Withdraw a charge in the store's next call."""
        self._start(self._send(request, charged_us), request)

    def add(self, request: Acquire, charged_us: int | None = None) -> None:
        """Withdraw a charge when the store has answered for a while, unless too many are pending."""
        pending = self._pending.setdefault(request.plan.key, {})
        if len(pending) < PENDING_MAX:
            pending[request.uid] = _Pending(request, charged_us, None)

    def cancel(self, key: ServiceKey, uid: str) -> None:
        """Keep the charge: the Pod was admitted after all. What was sent already takes effect before that admission."""
        self._pending.get(key, {}).pop(uid, None)
        for task, sent in self._tasks.items():
            if sent == (key, uid):
                task.cancel()

    async def send_due(self, key: ServiceKey) -> bool:
        """Withdraw some of a service's due charges; return whether there were any and the store answered.

        Call this only while the store answers: it starts the delay of new charges.
        """
        pending, now = self._pending.get(key), asyncio.get_running_loop().time()
        if not pending:
            self._pending.pop(key, None)
            return False
        due = [refund for refund in pending.values() if refund.due is not None and refund.due <= now][
            :_REFUNDS_PER_ROUND_MAX
        ]
        for uid, refund in pending.items():
            if refund.due is None:
                pending[uid] = refund._replace(due=now + self._delay_seconds)
        for refund in due:
            del pending[refund.request.uid]
        tasks = [self._start(self._send(refund.request, refund.charged_us), refund.request) for refund in due]
        return all(await asyncio.gather(*tasks, return_exceptions=True)) and bool(due)

    async def finish(self) -> None:
        """Wait for the withdrawals that are being sent."""
        if self._tasks:
            await asyncio.wait([*self._tasks])

    def stop(self) -> None:
        """Cancel all withdrawals."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, bool], request: Acquire) -> asyncio.Task[bool]:
        task = asyncio.create_task(work, name="store-withdrawal")
        self._tasks[task] = request.plan.key, request.uid
        task.add_done_callback(self._tasks.pop)
        return task

    async def _send_late(self, request: Acquire, late: "asyncio.Future[int | None]") -> bool:
        charged_us = await late
        if charged_us is None:
            self.add(request)
            return False
        return charged_us == 0 or await self._send(request, charged_us)

    async def _send(self, request: Acquire, charged_us: int | None) -> bool:
        """Withdraw a charge; return whether the store has answered."""
        try:
            withdrawn = await self._store.withdraw(request, charged_us)
        except StoreUnavailableError:
            self.add(request, charged_us)
            return False
        if withdrawn:
            self._on_withdrawn(request.plan)
        return True
