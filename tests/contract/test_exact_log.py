"""Every store compared with an exact log of events: zero oversell, zero unjustified denials.

`make soak` takes 200,000 deeds on each store. A failure prints the seed and the deeds, which `replay` takes.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.contract.exact_operations import ARGUMENTS, Deed, HandClock, drawn
from tests.contract.exact_scenario import World
from tests.contract.store_session import STORES, Stage, staged
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

DEEDS = int(os.environ.get("PODGATE_TEST_DEEDS", "1000"))
"""On each store."""
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
_DEEDS_A_WORLD = 500
_MACHINES, _DEEDS_A_MACHINE = (20, 30) if DEEDS < 10_000 else (300, 50)


async def replay(deeds: Sequence[Deed], world: World) -> World:
    for deed in deeds:
        await world.do(deed)
    return world


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=STORES)
def stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with staged(request.param, clock, shared_redis) as on:
        yield on


def world_on(stage: Stage, clock: HandClock) -> World:
    stage.told.clear()
    clock.reset()  # so that a world alone can be replayed
    return World(stage.store, clock, stage.name(), stage.told)


def test_a_walk_of_many_deeds_agrees_with_the_log(stage: Stage, clock: HandClock) -> None:
    begun, calls, charges, refusals = time.monotonic(), 0, 0, 0
    for first in range(0, DEEDS, _DEEDS_A_WORLD):
        world, seed = world_on(stage, clock), f"{SEED}:{first}"
        chosen = Random(seed)  # noqa: S311  it guards nothing
        try:
            stage.runner.run(replay([drawn(chosen) for _ in range(_DEEDS_A_WORLD)], world))
        except BaseException as error:
            error.add_note(f"PODGATE_TEST_SEED={SEED}, world {first}: replay({world.deeds!r}, world)")
            raise
        calls += world.calls
        charges += world.witness.charges
        refusals += world.witness.refusals
    print(  # noqa: T201  what `make soak` is asked for
        f"\n{DEEDS} deeds, {calls} calls, {charges} charges and {refusals} refusals in {time.monotonic() - begun:.0f} s"
    )
    assert charges > DEEDS // 10 < refusals, "both are worth something only if there are many"


class Deeds(RuleBasedStateMachine):
    """One rule for each kind of deed; its checks are the world's own."""

    stage: Stage
    clock: HandClock

    def __init__(self) -> None:
        super().__init__()
        self.world = world_on(self.stage, self.clock)

    def done(self, deed: Deed) -> None:
        self.stage.runner.run(self.world.do(deed))


def _ruled(name: str) -> Any:
    drawn_of = st.tuples(*(st.sampled_from(choices) for choices in ARGUMENTS[name]))

    def do(self: Deeds, arguments: tuple[Any, ...]) -> None:
        self.done((name, *arguments))

    do.__name__ = name
    return rule(arguments=drawn_of)(do)


def test_whatever_hypothesis_thinks_of_agrees_with_the_log(stage: Stage, clock: HandClock) -> None:
    machine = type("AnyDeeds", (Deeds,), {"stage": stage, "clock": clock, **{name: _ruled(name) for name in ARGUMENTS}})
    run_state_machine_as_test(machine, settings=settings(max_examples=_MACHINES, stateful_step_count=_DEEDS_A_MACHINE))
