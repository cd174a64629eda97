"""Parts of the benchmark that measure in one process run and print their figures."""

import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import breaker_cost, evaluation, loop_stalls, pod_rules, pods, policy_changes, starts
from tests.bench.acquires import COLUMNS, acquires
from tests.bench.alternatives import CALLERS, CASES, FULL, GCRA, Case
from tests.bench.real_redis import real_redis
from tests.redis_servers import RedisServer


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with real_redis() as server:
        yield server


async def test_it_prints_what_an_acquire_costs_each_rival_in_every_case(redis: RedisServer) -> None:
    (title, _, columns, *lines), figures = await acquires(redis, rounds=2, pods=CALLERS)

    assert f"2 rounds of {CALLERS}" in title
    assert columns.split()[-len(COLUMNS) :] == list(COLUMNS)
    assert [line for line in lines if not line.startswith(" ")] == [case.name for case in CASES]
    rows = [found.groups() for line in lines if (found := re.fullmatch(r"  (\w[\w, -]*?) {2,}(.*)", line))]
    rivals = ["podgate", "podgate, one caller", "gcra", "gcra, in pipelines", "limits, two counters", "limits, moving"]
    assert [name for name, _ in rows] == [row["name"] for row in figures] == rivals * len(CASES)
    assert all(row["script_us"].median > 0 and row["client_us"].median > 0 for row in figures)
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
    head, *lines = evaluation.measure(rounds=1)
    assert int(re.findall(r"\d+", head)[0]) >= evaluation.POD_BYTES
    assert all(re.fullmatch(r"decode and (rewrite|check) +\d+\.\d\d  \(from .*\)", line) for line in lines)
    assert len(lines) == 2


def test_it_prints_what_rules_cost_a_review_and_at_the_limit_of_cost() -> None:
    ten, view, *lines = pod_rules.measure(rounds=1)
    assert re.fullmatch(r"ten rules, with the view of the Pod +\d+\.\d us", ten)
    assert re.fullmatch(r"the view of the largest Pod +\d+\.\d us", view)
    assert all(re.search(r"  \d+\.\d us, at the limit +\d+\.\d us$", line) for line in lines)
    assert len(lines) == len(pod_rules.NEAR_THE_LIMIT)


def test_it_prints_what_a_breaker_costs_a_review_when_closed_and_when_it_refuses() -> None:
    head, *lines = breaker_cost.measure(rounds=2)
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
    head, *lines = await pods.measure_watch(redis, pods=2 * pods.PAGE, rounds=2, quiet_seconds=0.2)
    assert f"among {2 * pods.PAGE} Pods" in head
    shown = [found.groups() for line in lines if (found := re.fullmatch(r"( *\w.*?) {2,}(-?[\d.]+)  \(.*\)", line))]
    assert len(shown) == len(lines) == 8
    assert all(float(figure) > 0 for name, figure in shown if name.startswith("seconds"))
    with redis.client() as client:
        there = [client.hlen(f"podgate:{{s{n}}}:v1:bench-{2 * pods.PAGE}:live:s{n}") for n in range(pods.SERVICES)]
    assert sum(there) - 3 * pods.SERVICES == 2 * pods.PAGE, "beside its Pods each has three fields of its own"


def test_it_prints_the_longest_turns_of_the_loop_beside_an_idle_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_stalls, "SERVICES", 20)
    monkeypatch.setattr(loop_stalls, "REPEATS", 2)
    (_, *lines), figures = loop_stalls.measure()
    assert len(lines) == len(figures) == 10
    assert all(figure["wall_ms"].median > 0 for figure in figures)
    assert all(re.fullmatch(r"  \S.*? +[\d.]+  \(by the wall [\d.]+, an idle process [\d.]+\)", line) for line in lines)


def test_it_prints_what_a_server_needs_until_it_is_ready() -> None:
    (head, *lines), measured = starts.measure(rounds=1, services=3)
    assert "1 interleaved rounds" in head
    servers, parts = lines[:4], lines[4:]
    figures = r"\d+ \(\d+-\d+\)"
    of_a_server = rf"  \S.*? +ready {figures}, CPU {figures}, its children {figures} ms; RSS {figures} MiB"
    assert all(re.fullmatch(of_a_server, line) for line in servers)
    assert all(re.fullmatch(rf"  \S.*? +CPU {figures} ms", line) for line in parts)
    assert [line.split("  ")[1] for line in lines] == [figures["name"] for figures in measured]
    assert len(parts) == 4


def test_a_policy_that_differs_in_one_service_costs_less_than_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_changes, "SIZES", (600,))
    (title, *lines), (whole, one) = policy_changes.measure(rounds=2)
    assert title.startswith("a policy checked and put into force")
    assert all(
        re.fullmatch(r"  \S.*? +check \S+ \(.*\), server \S+ \(.*\), longest turn \S+ \(.*\)", line) for line in lines
    )
    assert one["check_ms"].low < whole["check_ms"].median
    assert one["server_ms"].low < whole["server_ms"].median


def test_a_start_under_another_interpreter_is_named_by_its_version(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    own, (name, other) = starts.list_builds(None, [str(python)]).items()
    assert own == ("", starts.Build())
    assert (name, other) == (f"CPython {platform.python_version()}: ", starts.Build(python=str(python)))
