"""The benchmark runs, on servers that answer, and prints its figures. What they are is no test's business."""

import re

from tests.bench import evaluation
from tests.bench.__main__ import bench, variants
from tests.bench.measuring import CONNECTIONS, Target, report


async def test_it_prints_reviews_per_cpu_second_and_the_ratio_for_every_variant() -> None:
    with variants() as measured:
        lines = await bench(measured, rounds=2, calls=2 * CONNECTIONS)

    assert f"2 rounds of {2 * CONNECTIONS} reviews" in lines[0]
    shown = {
        name: float(median)
        for name, median in (re.fullmatch(r"(.*?) +([\d.]+)  \(from .*\)", line).groups() for line in lines[1:])
    }
    assert set(shown) == {
        "empty aiohttp handler",
        *(variant.name for variant in measured),
        *(f"ratio: {variant.name}" for variant in measured),
    }
    assert all(value > 0 for value in shown.values())


def test_it_prints_what_both_halves_of_a_large_pod_cost_in_decodes() -> None:
    head, *lines = evaluation.measured(rounds=1)
    assert int(re.findall(r"\d+", head)[0]) >= evaluation.POD_BYTES
    assert all(re.fullmatch(r"decode and (rewrite|check) +\d+\.\d\d  \(from .*\)", line) for line in lines)
    assert len(lines) == 2


def test_a_ratio_is_taken_round_by_round() -> None:
    """Medians of each server alone would pair a quiet moment of the machine with a busy one."""
    own = Target("own", pid=0, per_cpu_second=[50.0, 100.0, 300.0])
    other = Target("other", pid=0, per_cpu_second=[100.0, 400.0, 400.0])

    *_, ratio = report([own], other)

    assert ratio.split() == ["ratio:", "own", "0.50", "(from", "0.25", "to", "0.75)"]
