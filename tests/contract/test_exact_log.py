"""Every store compared with an exact log of events: zero oversell, zero unjustified denials.

`make soak` takes 200,000 operations on each store. A failure prints the seed and the operations, which `replay` takes.
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

from tests.contract.exact_operations import ARGUMENTS, HandClock, Operation, drawn
from tests.contract.exact_scenario import World
from tests.contract.store_session import STORES, Stage, staged
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

OPERATIONS = int(os.environ.get("PODGATE_TEST_OPERATIONS", "1000"))
"""On each store."""
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
_OPERATIONS_PER_RUN = 500
_MACHINES, _OPERATIONS_PER_MACHINE = (20, 30) if OPERATIONS < 10_000 else (300, 50)


async def replay(operations: Sequence[Operation], world: World) -> World:
    for operation in operations:
        await world.do(operation)
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


def test_a_walk_of_many_operations_agrees_with_the_log(stage: Stage, clock: HandClock) -> None:
    begun, calls, charges, refusals = time.monotonic(), 0, 0, 0
    for first in range(0, OPERATIONS, _OPERATIONS_PER_RUN):
        world, seed = world_on(stage, clock), f"{SEED}:{first}"
        chosen = Random(seed)  # noqa: S311  it guards nothing
        try:
            stage.runner.run(replay([drawn(chosen) for _ in range(_OPERATIONS_PER_RUN)], world))
        except BaseException as error:
            error.add_note(f"PODGATE_TEST_SEED={SEED}, world {first}: replay({world.operations!r}, world)")
            raise
        calls += world.calls
        charges += world.witness.charges
        refusals += world.witness.refusals
    seconds = time.monotonic() - begun
    counts = f"{OPERATIONS} operations, {calls} calls, {charges} charges and {refusals} refusals"
    print(f"\n{counts} in {seconds:.0f} s")  # noqa: T201  `make soak` prints it
    assert charges > OPERATIONS // 10 < refusals, "both are worth something only if there are many"


class Operations(RuleBasedStateMachine):
    """One rule for each kind of operation; its checks are the world's own."""

    stage: Stage
    clock: HandClock

    def __init__(self) -> None:
        super().__init__()
        self.world = world_on(self.stage, self.clock)

    def done(self, operation: Operation) -> None:
        self.stage.runner.run(self.world.do(operation))


def _ruled(name: str) -> Any:
    drawn_of = st.tuples(*(st.sampled_from(choices) for choices in ARGUMENTS[name]))

    def do(self: Operations, arguments: tuple[Any, ...]) -> None:
        self.done((name, *arguments))

    do.__name__ = name
    return rule(arguments=drawn_of)(do)


def test_whatever_hypothesis_thinks_of_agrees_with_the_log(stage: Stage, clock: HandClock) -> None:
    machine = type(
        "AnyOperations", (Operations,), {"stage": stage, "clock": clock, **{name: _ruled(name) for name in ARGUMENTS}}
    )
    run_state_machine_as_test(
        machine, settings=settings(max_examples=_MACHINES, stateful_step_count=_OPERATIONS_PER_MACHINE)
    )
