"""Changed inputs keep the oracles: some of each target here; in `make soak`, under coverage guidance for an hour."""

import os
import random
import time

import pytest

from tests.fuzz.catalogue import NAMES, load_target
from tests.fuzz.corpus import read_entries
from tests.fuzz.guided import read_output, run_guided
from tests.fuzz.mutators import mutate

GUIDED_SECONDS = float(os.environ.get("PODGATE_TEST_GUIDED_SECONDS", "0"))
MUTATIONS = 60 if "PODGATE_TEST_SHORT" in os.environ else 400
FIRST_SEED = 1 if "CI" in os.environ else time.time_ns()
SIZE_MAX = 8192


@pytest.mark.parametrize("name", NAMES)
def test_no_input_breaks_the_oracle(name: str) -> None:
    if GUIDED_SECONDS:
        run = run_guided(name, GUIDED_SECONDS / len(NAMES))
        print(run)  # noqa: T201  for a person
        assert not run.failure, run.failure
        return
    target, chosen = load_target(name), random.Random(FIRST_SEED)  # noqa: S311  inputs, not secrets
    entries = read_entries(name)  # unlike the seeds, they are the same in each process
    for _ in range(MUTATIONS):
        data = mutate(target, chosen.choice(entries), SIZE_MAX, chosen.getrandbits(32))
        try:
            target.check(data)
        except BaseException as error:
            error.add_note(f"input: {data!r}")
            raise


@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_the_same_for_the_same_seed(name: str) -> None:
    target = load_target(name)
    [seed, *_] = read_entries(name)
    changed = [mutate(target, seed, SIZE_MAX, number) for number in range(50)]
    assert changed == [mutate(target, seed, SIZE_MAX, number) for number in range(50)]
    assert len({*changed} - {seed}) > 10
    assert all(len(data) <= 30 for data in (mutate(target, seed, 30, number) for number in range(20)))


OUTPUT = """INFO: seed corpus: files: 4 min: 2b max: 90b total: 200b rss: 90Mb
#5\tINITED cov: 120 ft: 130 corp: 4/200b exec/s: 0 rss: 91Mb
#900\tNEW    cov: 151 ft: 210 corp: 9/700b lim: 90 exec/s: 450 rss: 91Mb L: 90/90 MS: 1 Custom-
{end}
stat::number_of_executed_units: 1800
"""


def test_output_of_a_run_is_read() -> None:
    clean = read_output("outcomes", OUTPUT.format(end="Done 1800 runs in 4 second(s)"), 0)
    assert clean[1:] == (1800, 4, 120, 151, 9, "")
    failed = read_output("outcomes", OUTPUT.format(end="=== Uncaught Python exception: ==="), 77)
    assert "Uncaught" in failed.failure
