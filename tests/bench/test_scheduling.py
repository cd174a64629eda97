"""Scheduling with and without the extender: output of a short run."""

import re

from tests.bench.scheduling import opcodes, throughput
from tests.bench.scheduling.cluster import ALL_RULES, PASS_ALL, WAYS


def test_each_way_schedules_its_pods_and_has_its_figures() -> None:
    (head, *lines), figures = throughput.measure(nodes=20, percentage=100, rounds=1, pods=5, quiet_seconds=0.1)
    assert head == "20 nodes, 100 % asked; 1 interleaved rounds of 5 Pods"
    assert set(figures["pods_per_second"]) == set(WAYS)
    assert all(rate.median > 0 for rate in figures["pods_per_second"].values())
    assert figures["cpu_ms"].median > 0
    assert list(figures["quantiles_ms"]) == ["filter p50", "filter p99", "prioritize p50", "prioritize p99"]
    assert all(value > 0 for value in figures["quantiles_ms"].values()), "the extender was asked"
    assert len(lines) == len([line for line in lines if re.search(r"\d", line)]) == 8


def test_opcodes_are_the_same_in_each_count_and_more_with_rules_and_nodes() -> None:
    few, many = (opcodes.measure_opcodes(count, count) for count in (20, 200))
    assert few == opcodes.measure_opcodes(20, 20)
    assert 0 < few[PASS_ALL] < few[ALL_RULES] < many[ALL_RULES]
