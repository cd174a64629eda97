"""Store switch: a store that can be made unavailable."""

from typing import Any, Protocol

from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import NoStoreAnswerError, StoreUnavailableError, UserError
from webhook.ports import BreakerLedger, CounterStore, PodLedger

_WITHOUT_IO = frozenset({"known_breaker", "last_breaker", "now_us"})


class ReplayStore(CounterStore, PodLedger, BreakerLedger, Protocol):
    """The store of a replay."""

    async def knows(self, request: Acquire) -> bool:
        """Return whether a Pod was charged and not refunded."""
        ...


class StoreSwitch:
    """Forwards each operation to a store; while `is_down`, operations raise NoStoreAnswerError at once.

    The failure of a real store is no event of the replay: it becomes a UserError, which ends the replay.
    """

    def __init__(self, store: object) -> None:
        self._store = store
        self.is_down = False

    async def others_settled(self, plan: CounterPlan, *, afresh: bool) -> int:  # noqa: ARG002  as in the port
        """Return 0: a replay has one server."""
        return 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if name in _WITHOUT_IO:
            return operation

        async def forward(*arguments: Any, **named: Any) -> Any:
            if self.is_down:
                raise NoStoreAnswerError("the store is down", sent=False)
            try:
                return await operation(*arguments, **named)
            except StoreUnavailableError as error:
                raise UserError(f"--store: {error}", "give the URL of a Redis that answers, or leave it out") from None

        return forward
