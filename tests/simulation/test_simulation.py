"""Histories of the pure parts: fixed seeds, and a new one each time but in CI, where a failure is to be repeated.

`make soak` runs them for PODGATE_TEST_SIMULATION seconds of CPU.
"""

import os
import secrets
from collections.abc import Iterator
from itertools import count

import pytest

from tests.simulation.catalog import SIMULATIONS
from tests.simulation.run import explore, run_history
from tests.simulation.world import ALL_FAULTS, Fault, Simulation

CPU_SECONDS = float(os.environ.get("PODGATE_TEST_SIMULATION", "0"))
SEED = os.environ.get("PODGATE_TEST_SEED", "")
_IS_SHORT = bool(os.environ.get("PODGATE_TEST_SHORT"))
_FIXED = 3 if _IS_SHORT else 10
_SHORT_SECONDS = 1.0 if _IS_SHORT else 5.0

everyone = pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.name)


@everyone
def test_what_must_hold_does_at_each_step_of_fixed_histories(simulation: type[Simulation]) -> None:
    for seed in range(_FIXED):
        history = run_history(simulation, str(seed))
        assert not history.error, str(history)


def draw_seeds(drawn: str) -> Iterator[str]:
    return (f"{drawn}-{number}" for number in count())


def test_what_must_hold_does_in_new_histories() -> None:
    drawn = SEED or ("1" if "CI" in os.environ else secrets.token_hex(4))
    print(f"\nPODGATE_TEST_SEED={drawn}")  # noqa: T201  pytest shows it with a failure
    speeds = explore(SIMULATIONS, draw_seeds(drawn), CPU_SECONDS or _SHORT_SECONDS)
    for name, speed in speeds.items():
        print(f"{name}: {speed * 60:,.0f} steps a minute of CPU")  # noqa: T201  `make soak` prints it


@everyone
def test_a_seed_is_a_whole_history(simulation: type[Simulation]) -> None:
    """Without any fault there is another history, and what must hold does, too."""
    once, again = (run_history(simulation, "7", steps=300) for _ in range(2))
    assert (once.steps, once.error) == (again.steps, "")
    for fault in Fault:
        history = run_history(simulation, "7", ALL_FAULTS - {fault}, steps=300)
        assert not history.error, str(history)
