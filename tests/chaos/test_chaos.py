"""Chaos on a real control plane: whatever fails, everything is as it should be in the end, and so was all before."""

import os
from pathlib import Path

from tests.chaos.forms import choose_form
from tests.chaos.judging import judge
from tests.chaos.report import format_schedule, summarize
from tests.chaos.run import Drawn, Run

SECONDS = float(os.environ.get("PODGATE_TEST_CHAOS", "90"))
FORM = os.environ.get("PODGATE_TEST_CHAOS_FORM")
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1049"))


def test_what_happened_in_chaos_is_what_is_promised(tmp_path: Path) -> None:
    drawn = Drawn(SEED, SECONDS, choose_form(SEED, SECONDS, FORM))
    print(f"\nseed {SEED}\n{format_schedule(drawn.build_plan().schedule)}")  # noqa: T201  shown after a failure
    running = Run(drawn, tmp_path / "lab", tmp_path / "history")
    history = running.do()
    print(summarize(history))  # noqa: T201  as above
    flaws = [*running.errors, *judge(history)]
    assert not flaws, "\n".join(flaws)
