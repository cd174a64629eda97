"""The simulations can fail: each defect that is planted in the pure parts is noticed within some histories."""

import pytest

from tests.simulation.catalog import SIMULATIONS
from tests.simulation.charges import Charges
from tests.simulation.defects import DEFECTS, Defect
from tests.simulation.run import run_history, shrink
from tests.simulation.world import Fault

_HISTORIES_MAX = 60


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_a_planted_defect_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect.plant(monkeypatch)
    histories = (run_history(defect.simulation, str(seed)) for seed in range(_HISTORIES_MAX))
    assert any(history.error for history in histories)


def test_each_simulation_has_planted_defects() -> None:
    assert {defect.simulation for defect in DEFECTS} == set(SIMULATIONS)


def test_a_failing_history_is_shown_with_the_command_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge that is made twice needs no fault of a clock, and no crash."""
    next(defect for defect in DEFECTS if "find_confirmed" in str(defect)).plant(monkeypatch)
    failed = next(history for seed in range(9) if (history := run_history(Charges, str(seed))).error)
    shortest = shrink(failed)
    assert not {Fault.CLOCK, Fault.CRASH} & shortest.faults
    words = f"python -m tests.simulation charges {shortest.seed} --without clock --without crash"
    assert words in str(shortest)
    assert run_history(Charges, shortest.seed, shortest.faults).error == shortest.error
