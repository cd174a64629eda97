"""Brings breakers where overrides want them, and back: whoever leads writes it into the record that all share."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from webhook.core.breaker import BreakerView, State, Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import BreakerLedger

_FORCED = frozenset({State.FORCED_OPEN, State.FORCED_CLOSED})


class OverrideEnforcer:
    """Asked again each second; the store itself remembers what it has done, whoever asks.

    `known` is how a breaker was heard of last, `asked` the breakers that are to begin anew, and since when.
    """

    def __init__(
        self,
        ledger: BreakerLedger,
        known: Callable[[CounterPlan], BreakerView | None],
        policy: Callable[[], CompiledPolicy | None],
        asked: Callable[[], Mapping[str, int]],
        told: Callable[[Transition], None],
        *,
        round_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._known = known
        self._policy = policy
        self._asked = asked
        self._told = told
        self._round_seconds = round_seconds

    async def run(self) -> None:
        """Do what is asked until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._round_seconds)

    async def look(self) -> None:
        """Do once what is asked now."""
        compiled = self._policy()
        if compiled is None:
            return
        asked = self._asked()
        await self._tell(tuple(self._concerned(compiled.plans.values(), asked)), asked)

    def _concerned(self, plans: Iterable[CounterPlan], asked: Mapping[str, int]) -> Iterable[CounterPlan]:
        for plan in plans:
            if plan.breaker is None:
                continue
            if plan.breaker.forcing is not None or plan.service in asked or self._is_forced(plan):
                yield plan

    def _is_forced(self, plan: CounterPlan) -> bool:
        """Whether a hand holds it in the record, which may have let go since, or whose time may have passed."""
        view = self._known(plan)
        return view is not None and view.state in _FORCED

    async def _tell(self, plans: tuple[CounterPlan, ...], asked: Mapping[str, int]) -> None:
        results = await asyncio.gather(
            *(self._ledger.by_hand(plan, asked.get(plan.service, 0)) for plan in plans), return_exceptions=True
        )
        for transition in (one for result in results if not isinstance(result, BaseException) for one in result):
            self._told(transition)
        for result in results:
            # Of a store that is away somebody has been told; the next round asks again.
            if isinstance(result, BaseException) and not isinstance(result, StoreUnavailableError):
                raise result
