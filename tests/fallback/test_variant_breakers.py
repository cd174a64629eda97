"""Breakers of variants while the store does not answer: they open, probe and close here, and the store takes that."""

from collections.abc import AsyncIterator

import pytest

from tests.core.breakers import VARIANT
from tests.core.plans import plan_of
from tests.fallback.local_breakers import AWAY
from tests.fallback.simulation import Simulation
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerView, State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, DeniedBy
from webhook.errors import StoreUnavailableError

SPOT = plan_of(service="web/spot", tag="web", breaker=VARIANT)
WEB = plan_of(service="web", tag="web")
OPEN_SECONDS = VARIANT.open_for_us // 1_000_000


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    simulation = Simulation()
    yield simulation
    simulation.store.failure = ""
    await simulation.guard.close()


async def report(simulation: Simulation, claim: str, *, ok: bool = False) -> None:
    await simulation.guard.record_outcomes(SPOT, [Outcomes.from_single(ok=ok, latency_us=0, uid=claim)])


async def tick(simulation: Simulation, seconds: int) -> list[str]:
    simulation.sleep(seconds)
    return [f"{move.service} {move.old} {move.new}" for move in await simulation.guard.tick([WEB, SPOT])]


async def ask(simulation: Simulation, claim: str) -> DeniedBy | None:
    """Ask for a token. Without limits there is no decision where the breaker admits: the caller takes it."""
    request = Acquire(SPOT, "shop", claim, {"pods": 1}, "controller:web-1")
    try:
        return (await simulation.guard.acquire(request)).refused
    except StoreUnavailableError:
        simulation.guard.book_later(request)
        return None


def read_stored(simulation: Simulation) -> BreakerView:
    view = MemoryStore.find_last_breaker(simulation.store, SPOT)
    assert view is not None
    return view


async def test_it_opens_and_closes_without_the_store(simulation: Simulation) -> None:
    simulation.store.failure = AWAY
    await report(simulation, "a")
    assert await tick(simulation, 2) == ["web/spot CLOSED OPEN"]
    known = simulation.guard.find_known_breaker(SPOT)
    assert known is not None
    assert (known.state, known.reason) == (State.OPEN, "unschedulable: no node for 300s, 1 Pod")
    assert await ask(simulation, "b") is DeniedBy.BREAKER
    assert await tick(simulation, OPEN_SECONDS) == ["web/spot OPEN HALF_OPEN"]
    assert [await ask(simulation, claim) for claim in "cd"] == [None, DeniedBy.BREAKER]
    await report(simulation, "c", ok=True)
    last = simulation.guard.find_last_breaker(SPOT)
    assert last is not None
    assert last.state is State.CLOSED


async def test_the_store_takes_what_opened_without_it(simulation: Simulation) -> None:
    await simulation.guard.tick([WEB, SPOT])
    simulation.store.failure = AWAY
    await report(simulation, "a")
    await tick(simulation, 2)
    assert read_stored(simulation).state is State.CLOSED
    simulation.store.failure = ""
    await simulation.wait_until_settled()
    assert read_stored(simulation).state is State.OPEN


async def test_a_state_of_the_store_holds_while_it_is_away(simulation: Simulation) -> None:
    await report(simulation, "a")
    assert await tick(simulation, 2) == ["web/spot CLOSED OPEN"]
    simulation.store.failure = AWAY
    assert await ask(simulation, "b") is DeniedBy.BREAKER
    assert await tick(simulation, OPEN_SECONDS) == ["web/spot OPEN HALF_OPEN"]
    assert await ask(simulation, "c") is None
