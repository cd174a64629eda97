"""The benchmark runs and prints its figures."""

import re
from collections.abc import Iterator

import pytest

from tests.bench import breaker_cost, evaluation, loop_stalls, pods
from tests.bench.__main__ import bench, checked_out, real_redis, variants
from tests.bench.acquires import COLUMNS, acquires
from tests.bench.alternatives import CALLERS, CASES, FULL, GCRA, Case
from tests.bench.server_load import CONNECTIONS, Target, ratio, report
from tests.bench.traffic import ADMITTED, Traffic
from tests.redis_servers import RedisServer


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with real_redis() as server:
        yield server


def target(name: str, *per_cpu_second: float) -> Target:
    return Target(name, pid=0, address="", traffic=Traffic("0" * 16, ADMITTED), per_cpu_second=[*per_cpu_second])


async def test_it_prints_reviews_per_cpu_second_and_their_ratios_for_every_variant(redis: RedisServer) -> None:
    with checked_out("HEAD") as before:
        measured = variants(redis, before)
        lines = await bench(measured, rounds=2, calls=2 * CONNECTIONS, opened=3)

    assert f"2 rounds of {2 * CONNECTIONS} reviews" in lines[0]
    shown = [found.groups() for line in lines if (found := re.fullmatch(r"( *\w.*?) +([\d.]+)  \(from .*\)", line))]
    admitted, refused = [one.name for one in measured], [f"{one.name}, refused" for one in measured]
    own = [*admitted, *refused]
    assert [name for name, _ in shown] == [
        *own,
        "empty aiohttp handler",
        *(f"  {name}" for name in own),
        *(f"  {name}" for name in refused),
        *[*admitted, "empty aiohttp handler"],
        *(f"  {name}" for name in admitted),
    ]
    assert all(float(median) > 0 for _, median in shown)


async def test_it_prints_what_an_acquire_costs_each_rival_in_every_case(redis: RedisServer) -> None:
    title, _, columns, *lines = await acquires(redis, rounds=2, pods=CALLERS)

    assert f"2 rounds of {CALLERS}" in title
    assert columns.split()[-len(COLUMNS) :] == list(COLUMNS)
    assert [line for line in lines if not line.startswith(" ")] == [case.name for case in CASES]
    rows = [found.groups() for line in lines if (found := re.fullmatch(r"  (\w[\w, -]*?) {2,}(.*)", line))]
    rivals = ["podgate", "gcra", "gcra, in pipelines", "limits, two counters", "limits, moving"]
    assert [name for name, _ in rows] == rivals * len(CASES)
    for name, cells in rows:
        figures = re.findall(r"([\d.]+) \(([\d.]+)\)", cells)
        assert len(figures) == len(COLUMNS)
        assert all(float(us) > 0 for us, _ in figures)
        assert name != "podgate" or {times for _, times in figures} == {"1.00"}


def test_a_limit_of_gcra_holds_so_many_pods_and_then_says_how_long_to_wait(redis: RedisServer) -> None:
    """A rival that counted nothing would be cheap."""
    (_, _, pods), *_ = Case(limits=1, refused=True).hard
    with redis.client() as client:
        waits_us = [client.eval(GCRA, 1, "one", pods, 86_400_000_000, 1) for _ in range(pods + 1)]
    assert pods == FULL
    assert waits_us[:-1] == [0] * pods
    assert 0 < waits_us[-1] <= 86_400_000_000 / pods


def test_it_prints_what_both_halves_of_a_large_pod_cost_in_decodes() -> None:
    head, *lines = evaluation.measured(rounds=1)
    assert int(re.findall(r"\d+", head)[0]) >= evaluation.POD_BYTES
    assert all(re.fullmatch(r"decode and (rewrite|check) +\d+\.\d\d  \(from .*\)", line) for line in lines)
    assert len(lines) == 2


def test_it_prints_what_a_breaker_costs_a_review_when_closed_and_when_it_refuses() -> None:
    head, *lines = breaker_cost.measured(rounds=2)
    assert "2 rounds" in head
    shown = [found.groups() for line in lines if (found := re.fullmatch(r"(\w.*?) {2,}(-?[\d.]+)  \(from .*\)", line))]
    told = ("", ", metrics and logs")
    assert [name for name, _ in shown] == [
        name.format(observers)
        for observers in told
        for name in (
            "a closed breaker{}: microseconds",
            "a closed breaker{}: times none",
            "refused in OPEN{}: times admitted",
        )
    ]
    assert all(float(figure) > 0 for name, figure in shown if "times" in name)


async def test_it_prints_what_the_controller_costs_among_many_pods(redis: RedisServer) -> None:
    head, *lines = await pods.watched(redis, pods=2 * pods.PAGE, rounds=2, quiet_seconds=0.2)
    assert f"among {2 * pods.PAGE} Pods" in head
    shown = [found.groups() for line in lines if (found := re.fullmatch(r"( *\w.*?) {2,}(-?[\d.]+)  \(.*\)", line))]
    assert len(shown) == len(lines) == 8
    assert all(float(figure) > 0 for name, figure in shown if name.startswith("seconds"))
    with redis.client() as client:
        there = [client.hlen(f"podgate:{{s{n}}}:v1:bench-{2 * pods.PAGE}:live:s{n}") for n in range(pods.SERVICES)]
    assert sum(there) - 2 * pods.SERVICES == 2 * pods.PAGE, "beside its Pods each has two fields of its own"


def test_a_ratio_is_taken_round_by_round() -> None:
    """Medians of each server alone would pair a quiet moment of the machine with a busy one."""
    own, other = target("own", 50.0, 100.0, 300.0), target("other", 100.0, 400.0, 400.0)

    assert ratio(own, other).split() == ["own", "0.50", "(from", "0.25", "to", "0.75)"]
    assert report([own])[0].split() == ["own", "100", "(from", "50", "to", "300)"]


def test_it_prints_the_longest_turns_of_the_loop_beside_an_idle_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_stalls, "SERVICES", 20)
    monkeypatch.setattr(loop_stalls, "REPEATS", 2)
    _, *lines = loop_stalls.measured()
    assert len(lines) == 5
    assert all(re.fullmatch(r"  \S.*? +[\d.]+  \(by the wall [\d.]+, an idle process [\d.]+\)", line) for line in lines)
