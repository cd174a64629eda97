"""Every store compared with an exact log of events: zero oversell, zero unjustified denials.

`make soak` takes 200,000 operations on each store. A failure prints the seed and the operations, which `replay` takes.
"""

import os
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.contract.exact_operations import ARGUMENTS, HandClock, Operation, draw
from tests.contract.exact_scenario import Scenario
from tests.contract.stage_fixtures import clock, stage
from tests.contract.store_session import Stage

pytest_plugins = ("tests.redis_servers.fixtures",)
__all__ = ["clock", "stage"]

OPERATIONS = int(os.environ.get("PODGATE_TEST_OPERATIONS", "1000"))
"""On each store."""
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
_OPERATIONS_PER_RUN = 500
_MACHINES, _OPERATIONS_PER_MACHINE = (20, 30) if OPERATIONS < 10_000 else (300, 50)


async def replay(operations: Sequence[Operation], scenario: Scenario) -> Scenario:
    for operation in operations:
        await scenario.do(operation)
    return scenario


def new_scenario(stage: Stage, clock: HandClock) -> Scenario:
    stage.reports.clear()
    clock.reset()  # so that a single scenario can be replayed
    return Scenario(stage.store, clock, stage.name(), stage.reports)


def test_random_operations_agree_with_the_log(stage: Stage, clock: HandClock) -> None:
    begun, calls, charges, refusals = time.monotonic(), 0, 0, 0
    for first in range(0, OPERATIONS, _OPERATIONS_PER_RUN):
        scenario, seed = new_scenario(stage, clock), f"{SEED}:{first}"
        chosen = Random(seed)  # noqa: S311  not for security
        try:
            stage.runner.run(replay([draw(chosen) for _ in range(_OPERATIONS_PER_RUN)], scenario))
        except BaseException as error:
            error.add_note(f"PODGATE_TEST_SEED={SEED}, scenario {first}: replay({scenario.operations!r}, scenario)")
            raise
        calls += scenario.calls
        charges += scenario.witness.charges
        refusals += scenario.witness.refusals
    seconds = time.monotonic() - begun
    counts = f"{OPERATIONS} operations, {calls} calls, {charges} charges and {refusals} refusals"
    print(f"\n{counts} in {seconds:.0f} s")  # noqa: T201  `make soak` prints it
    assert charges > OPERATIONS // 10 < refusals, "a run needs many charges and many denials"


class Operations(RuleBasedStateMachine):
    """One rule for each kind of operation; its checks are the scenario's own."""

    stage: Stage
    clock: HandClock

    def __init__(self) -> None:
        super().__init__()
        self.scenario = new_scenario(self.stage, self.clock)

    def run_operation(self, operation: Operation) -> None:
        self.stage.runner.run(self.scenario.do(operation))


def _rule_for(name: str) -> Any:
    arguments_of = st.tuples(*(st.sampled_from(choices) for choices in ARGUMENTS[name]))

    def do(self: Operations, arguments: tuple[Any, ...]) -> None:
        self.run_operation((name, *arguments))

    do.__name__ = name
    return rule(arguments=arguments_of)(do)


def test_generated_operations_agree_with_the_log(stage: Stage, clock: HandClock) -> None:
    machine = type(
        "AnyOperations",
        (Operations,),
        {"stage": stage, "clock": clock, **{name: _rule_for(name) for name in ARGUMENTS}},
    )
    run_state_machine_as_test(
        machine, settings=settings(max_examples=_MACHINES, stateful_step_count=_OPERATIONS_PER_MACHINE)
    )
