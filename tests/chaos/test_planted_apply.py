"""Each planted defect still applies to today's tree, once, and changes what Python or Lua can read."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.chaos.checkers import CHECKERS
from tests.chaos.light.schedules import SCHEDULES
from tests.chaos.planted.defect import Defect
from tests.chaos.planted.defects import DEFECTS
from tests.chaos.virtual.stages import STAGES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_defect_applies(defect: Defect, tmp_path: Path) -> None:
    path = tmp_path / defect.file
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / defect.file, path)
    defect.apply(tmp_path)
    assert path.read_text() != (ROOT / defect.file).read_text()
    if path.suffix == ".py":
        ast.parse(path.read_text())
    with pytest.raises(ValueError, match="stands there 0 times"):
        defect._replace(text="no such text").apply(tmp_path)


def test_the_defects_are_many_and_each_checker_has_one() -> None:
    assert len(DEFECTS) >= 20
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert {defect.stage for defect in DEFECTS} <= {*SCHEDULES, *STAGES}
    assert {checker for defect in DEFECTS for checker in defect.checkers} == set(CHECKERS)
    assert sum(bool(defect.past) for defect in DEFECTS) >= 5, "kinds of defects of the past are among them"
