"""Ticks of breakers without calls, after outages, and only with a policy."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.controller.override_enforcer import LOADED
from tests.harness.fake_apiserver import wait_until
from tests.harness.records import transition
from webhook.adapters.clocks import VirtualClock
from webhook.core.breaker import State, Transition
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.fallback.breaker_ticker import BreakerTicker

ALMOST_US = 1_000_000 - 1
"""The end of a second, as the clock of these tests always shows it."""
MOVED = transition(State.OPEN, State.HALF_OPEN)


class Counters:
    """Fails the first tick, and then returns a transition each time."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        self.asked.append([plan.service for plan in plans])
        if len(self.asked) == 1:
            raise StoreUnavailableError("away")
        return [MOVED]


async def test_all_services_are_ticked_and_transitions_reported() -> None:
    counters: Any = Counters()
    found: list[Transition] = []
    policies: list[CompiledPolicy | None] = [None, CompiledPolicy(LOADED), CompiledPolicy(LOADED)]
    ticking = BreakerTicker(
        counters, VirtualClock(ALMOST_US), lambda: policies.pop(0) if policies else None, found.append
    )
    task = asyncio.create_task(ticking.run())
    await wait_until(lambda: bool(found))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert found == [MOVED]
    assert counters.asked == [["web", "other", "plain"]] * 2, "and none without a policy"
