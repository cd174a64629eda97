"""Override enforcer: writes forced breaker states, their end, and breaker resets into the shared store."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from webhook.core.breaker import BreakerView, Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger


class OverrideEnforcer:
    """Applies overrides each second; the store ignores what it has applied already.

    `known` returns the last known view of a breaker; `resets` when a reset was requested, by the name
    of the breaker's plan.
    """

    def __init__(
        self,
        ledger: BreakerLedger,
        known: Callable[[CounterPlan], BreakerView | None],
        policy: Callable[[], CompiledPolicy | None],
        resets: Callable[[], Mapping[str, int]],
        on_transition: Callable[[Transition], None],
        *,
        round_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._known = known
        self._policy = policy
        self._resets = resets
        self._on_transition = on_transition
        self._round_seconds = round_seconds

    async def run(self) -> None:
        """Apply overrides until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._round_seconds)

    async def round(self) -> None:
        """Apply the current overrides once."""
        compiled = self._policy()
        if compiled is None:
            return
        resets = self._resets()
        await self._apply(tuple(self._list_affected(compiled.list_breakers(), resets)), resets)

    def _list_affected(self, plans: Iterable[CounterPlan], resets: Mapping[str, int]) -> Iterable[CounterPlan]:
        for plan in plans:
            if plan.breaker is None:
                continue
            if plan.breaker.forcing is not None or plan.service in resets or self._is_forced(plan):
                yield plan

    def _is_forced(self, plan: CounterPlan) -> bool:
        """Return whether the stored state is forced; the override may have ended since."""
        view = self._known(plan)
        return view is not None and view.state.is_forced

    async def _apply(self, plans: tuple[CounterPlan, ...], resets: Mapping[str, int]) -> None:
        results = await asyncio.gather(
            *(self._ledger.apply_override(plan, resets.get(plan.service, 0)) for plan in plans), return_exceptions=True
        )
        for transition in (
            transition for result in results if not isinstance(result, BaseException) for transition in result
        ):
            self._on_transition(transition)
        for result in results:
            # An unavailable store is reported elsewhere; the next round retries.
            if isinstance(result, BaseException) and not isinstance(result, StoreUnavailableError):
                raise result
