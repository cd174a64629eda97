"""Planted defects are caught by the checkers that are meant for them, and the product without one is clean.

`make soak` plants all of them by PODGATE_TEST_PLANTED=all.
"""

import os

import pytest

from tests.chaos.checkers import judge
from tests.chaos.planted.defect import Defect
from tests.chaos.planted.defects import DEFECTS
from tests.chaos.planted.running import TREE, catch, list_catching, plant, run_stage
from tests.chaos.virtual.stages import STAGES, play

ALL = os.environ.get("PODGATE_TEST_PLANTED") == "all"
SHORT = {
    "one Pod more than the limit",
    "a loss of data is not made up for",
    "a repeated review is charged again",
}
"""In `make test`: one of each of three checkers."""
CHOSEN = [defect for defect in DEFECTS if ALL or defect.name in SHORT]
VIRTUAL_SEEDS = 20 if ALL else 2


@pytest.mark.parametrize("defect", CHOSEN, ids=lambda defect: defect.name)
def test_defect_is_caught(defect: Defect) -> None:
    seed, judges = catch(defect)
    told = [str(violation) for each in judges for violation in each.violations[:2]]
    assert list_catching(defect, judges), f"{defect.stage}, seed {seed}: {told}"


@pytest.mark.parametrize("schedule", ["long", "full", "moved"] if ALL else ["away", "kill"])
def test_the_product_is_clean(schedule: str) -> None:
    with plant(None) as tree:
        judges = judge(run_stage(tree, schedule, 1, light=True))
    assert [str(violation) for each in judges for violation in each.violations][:10] == []
    judged = {each.checker: each.count for each in judges}
    for checker in ("windows", "charges", "judged", "failures", "agreement", "secrets"):
        assert judged[checker] > 0, judged


@pytest.mark.parametrize("stage", STAGES)
def test_the_virtual_stages_are_clean(stage: str) -> None:
    for seed in range(1, VIRTUAL_SEEDS + 1):
        judges = judge(play(stage, seed))
        assert [f"seed {seed}: {violation}" for each in judges for violation in each.violations][:10] == []


def test_the_short_form_names_defects_that_exist() -> None:
    assert {defect.name for defect in DEFECTS} >= SHORT
    assert TREE.joinpath("webhook").is_dir()
