"""Observed use: as large as Podgate counts at any position of its buckets, and outliers."""

import random

import pytest

from webhook.core.kubernetes.controllers import name_workload
from webhook.core.ledger.window_ring import Ring
from webhook.core.suggestion.limits import add_headroom
from webhook.core.suggestion.observed_use import Outlier, UseHistory, WorkloadShare

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US


def history(*charges: tuple[float, str, int]) -> UseHistory:
    found = UseHistory()
    for at, workload, pods in charges:
        found.add(round(at * SECOND_US), workload, {"pods": pods})
    return found


@pytest.mark.parametrize("seed", range(8))
def test_no_position_of_the_buckets_counts_more(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  repeatable
    seconds = chance.choice([1, 10, 60, 3600])
    moments = sorted(chance.randrange(0, 4 * seconds * SECOND_US) for _ in range(300))
    found = UseHistory()
    for at_us in moments:
        found.add(at_us, "w", {"pods": 1})
    use = found.measure(seconds, "pods")
    assert use is not None
    largest = []
    for _ in range(20):
        shift_us = chance.randrange(0, seconds * SECOND_US)
        ring, used = Ring(seconds), 0
        for at_us in moments:
            ring.add(at_us + shift_us, {"pods": 1}, at_us + shift_us)
            used = max(used, ring.used(at_us + shift_us)["pods"])
        largest.append(used)
    assert max(largest) <= use.largest
    exact = max(sum(at_us - seconds * SECOND_US < other <= at_us for other in moments) for at_us in moments)
    assert exact <= use.largest


def test_the_largest_use_names_moment_and_workloads() -> None:
    use = history((0, "a", 1), (30, "a", 2), (50, "b", 3), (200, "b", 4)).measure(60, "pods")
    assert use is not None
    assert (use.largest, use.at_us) == (6, 50 * SECOND_US)
    assert use.contributors == (WorkloadShare("a", 3), WorkloadShare("b", 3))
    assert (use.usual, use.spans, use.outlier) == (6, 1, None)


def test_what_was_never_charged_has_no_use() -> None:
    found = history((0, "a", 1))
    assert found.measure(60, "requests.cpu") is None
    assert found.resources == ("pods",)
    assert UseHistory().measure(60, "pods") is None


def test_live_use_falls_with_the_ends_of_pods() -> None:
    found = history((0, "a", 1), (1, "b", 5))
    found.add(2 * SECOND_US, "b", {"pods": 5}, -1)
    found.add(3 * SECOND_US, "c", {"pods": 2})
    use = found.measure(0, "pods")
    assert use is not None
    assert (use.largest, use.at_us, use.contributors[0]) == (6, SECOND_US, WorkloadShare("b", 5))


HOURS = [(hour * 3600.0, "web", 2) for hour in range(8)]


def test_a_single_burst_by_one_workload_is_an_outlier() -> None:
    use = history(*HOURS, (8 * 3600, "load", 9)).measure(60, "pods")
    assert use is not None
    assert use.outlier == Outlier("load", 9, 2)


@pytest.mark.parametrize(
    "burst",
    [
        [(8 * 3600, "load", 5)],
        [(8 * 3600, f"w{number}", 1) for number in range(9)],
        [(8 * 3600, "load", 9), (12 * 3600, "load", 9)],
    ],
    ids=["not far above", "by many workloads", "again later"],
)
def test_other_peaks_are_no_outliers(burst: list[tuple[float, str, int]]) -> None:
    use = history(*HOURS, *burst).measure(60, "pods")
    assert use is not None
    assert use.outlier is None


def test_a_few_hours_do_not_show_what_is_usual() -> None:
    use = history(*HOURS[:5], (8 * 3600, "load", 9)).measure(60, "pods")
    assert use is not None
    assert use.outlier is None


@pytest.mark.parametrize("resource", ["pods", "requests.cpu", "memory", "requests.nvidia.com/gpu"])
def test_headroom_is_at_least_what_is_wished_and_at_most_twice_the_use(resource: str) -> None:
    for amount in [*range(1, 2000), 10**6 + 1, 3 * 2**30 + 5, 2**43 - 1]:
        limit = add_headroom(amount, 25, resource)
        assert 1.25 * amount <= limit <= 2 * amount, (resource, amount, limit)


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "web-5d9f", {"pod-template-hash": "5d9f"}, "Deployment shop/web"),
        ("ReplicaSet", "web-5d9f", {}, "ReplicaSet shop/web-5d9f"),
        ("Job", "report-29399160", {}, "CronJob shop/report"),
        ("Job", "migrate-1", {}, "Job shop/migrate-1"),
        ("StatefulSet", "db", {}, "StatefulSet shop/db"),
    ],
)
def test_a_workload_is_named_as_people_know_it(kind: str, name: str, labels: dict[str, str], expected: str) -> None:
    owner = {"kind": kind, "name": name, "controller": True}
    assert name_workload({"metadata": {"labels": labels, "ownerReferences": [owner]}}, "shop", "u") == expected
    assert name_workload({"metadata": {}}, "shop", "alice") == "Pods of alice in shop"
