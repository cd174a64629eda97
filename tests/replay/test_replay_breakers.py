"""Breakers in a replay: Pod starts, degradation, the guard; and the summary table."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Json, podgate

ROOT = Path(__file__).parents[2]
REPLAYS = ROOT / "tests/replay/replays"
ONE_ERROR_TRIPS = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 64s, hard: {pods: 100}}]}
  breaker:
    outcomes: {source: PodStart}
    errorRate: {percent: 50, interval: 30s, consecutive: 1, minimumOutcomes: 1}
    openFor: 60s
    halfOpen: {probes: 1}
- {name: other, match: {namespaces: [other]}, breaker: {quotaExceeded: {}}}
"""
POD = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}


def play(name: str) -> tuple[list[Json], dict[str, dict[str, str]]]:
    """Return the lines, and the table of breakers by service."""
    folder = REPLAYS / name
    done = podgate("replay", folder / "events.jsonl", "--policy", folder / "policy.yaml")
    assert done.code == 0, done.err
    return done.lines, parse_table(done.err)


def play_files(folder: Path, policy: str, *events: Json) -> tuple[list[Json], dict[str, dict[str, str]]]:
    (folder / "policy.yaml").write_text(policy)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    done = podgate("replay", folder / "events.jsonl", "--policy", folder / "policy.yaml")
    assert done.code == 0, done.err
    return done.lines, parse_table(done.err)


def parse_table(output: str) -> dict[str, dict[str, str]]:
    """Read the table below the line that counts events: columns begin where their headings do."""
    _, *rows = output.splitlines()
    if not rows:
        return {}
    heads = [head.strip() for head in rows[0].split("  ") if head.strip()]
    starts = [*(rows[0].index(head) for head in heads), None]
    cells = [[row[begin:end].strip() for begin, end in pairwise(starts)] for row in rows[1:]]
    return {row[0]: dict(zip(heads, row, strict=True)) for row in cells}


def list_states(lines: list[Json], at: float) -> list[tuple[str, int]]:
    return [(line["breaker"], line["generation"]) for line in lines if line["at"] == at]


def pod(at: float, uid: str, namespace: str = "shop") -> Json:
    return {"at": at, "pod": POD, "namespace": namespace, "uid": uid}


def outcome(at: float, *, ok: bool, **more: Any) -> Json:
    return {"at": at, "outcome": {"service": "web", "ok": ok, **more}}


def test_pod_has_one_outcome_for_the_breaker_that_admitted_it() -> None:
    lines, summary = play("tripped_by_starts")
    assert list_states(lines, 60)[0] == ("CLOSED", 0), (
        "one error reported three times is one outcome, and two are required"
    )
    assert (list_states(lines, 119.999999), list_states(lines, 120)) == ([("CLOSED", 0)], [("OPEN", 1)])
    assert list_states(lines, 182) == [("HALF_OPEN", 2)], "an earlier Pod is no probe"
    assert list_states(lines, 183) == [("CLOSED", 3)]
    assert list_states(lines, 240) == [("CLOSED", 3)], "two slow outcomes, but from before the trip"
    assert list_states(lines, 270) == [("OPEN", 4)], "two slow outcomes of this generation"
    assert (list_states(lines, 332), list_states(lines, 394), list_states(lines, 395)) == (
        [("OPEN", 6)],
        [("HALF_OPEN", 7)],  # of an earlier generation
        [("CLOSED", 8)],
    )
    web = {"SERVICE": "web", "TRIPS": "2 (errorRate 1, latency 1)", "HELD BACK": "0", "REOPENED": "1"}
    assert summary == {"web": {**web, "OPEN": "180s", "REFUSED": "1", "DEGRADED": "0", "NOT ENFORCED": "0"}}


def test_degrade_denies_no_pod_and_reports_affected_pods() -> None:
    lines, summary = play("degraded")
    pods = [line for line in lines if "decision" in line]
    assert {line["decision"] for line in pods} == {"Admit"}
    assert [line["breaker"] for line in pods if line["service"] == "web"] == [
        *("CLOSED", "OPEN", "OPEN", "HALF_OPEN", "HALF_OPEN", "CLOSED")
    ]
    affected = [(row["REFUSED"], row["DEGRADED"], row["NOT ENFORCED"]) for row in summary.values()]
    assert list(zip(summary, affected, strict=True)) == [("web", ("0", "2", "0")), ("warned", ("0", "0", "2"))]


def test_held_trips_are_reported_and_the_guard_frees_its_place() -> None:
    lines, summary = play("held_back")
    at_two = {line["service"]: line["breaker"] for line in lines if line["at"] == 2}
    assert at_two == {"s1": "OPEN", "s2": "CLOSED", "s3": "CLOSED", "s4": "OPEN", "s5": "OPEN"}
    assert (list_states(lines, 12.5), list_states(lines, 13)) == ([("CLOSED", 0)], [("OPEN", 1), ("OPEN", 1)])
    assert {service: row["HELD BACK"] for service, row in summary.items()} == {
        **dict.fromkeys(("s1", "s4", "s5", "audited"), "0"),
        "s2": "2 (errorRate 2)",  # by the three, and again while two of them probed
        "s3": "1 (errorRate 1)",
    }
    assert summary["s2"]["TRIPS"] == summary["audited"]["TRIPS"] == "1 (errorRate 1)", (
        "a trip in Audit mode takes no place"
    )


def test_denials_count_without_dry_runs_and_open_time_ends_with_the_replay(tmp_path: Path) -> None:
    dry = {**pod(33, "dry"), "dryRun": True}
    _, summary = play_files(tmp_path, ONE_ERROR_TRIPS, outcome(0, ok=False), pod(31, "a"), dry, pod(40.5, "b"))
    assert (summary["web"]["OPEN"], summary["web"]["REFUSED"]) == ("10500ms", "2")
    assert set(summary) == {"web"}, "a service without events is not listed"


def test_breaker_removed_from_the_policy_stops_its_open_time(tmp_path: Path) -> None:
    without = ONE_ERROR_TRIPS[: ONE_ERROR_TRIPS.index("  breaker:")]
    (tmp_path / "without.yaml").write_text(without)
    change = {"at": 37, "policy": "without.yaml"}
    _, summary = play_files(tmp_path, ONE_ERROR_TRIPS, outcome(0, ok=False), pod(31, "a"), change, pod(50, "b"))
    assert (summary["web"]["TRIPS"], summary["web"]["OPEN"]) == ("1 (errorRate 1)", "7s")


@pytest.mark.parametrize(("up_at", "breaker"), [(29, "OPEN"), (31, "CLOSED")])
def test_start_in_an_outage_counts_if_its_interval_is_still_open(tmp_path: Path, up_at: int, breaker: str) -> None:
    lines, summary = play_files(
        tmp_path,
        ONE_ERROR_TRIPS,
        pod(0, "a"),
        {"at": 1, "store": "down"},
        outcome(5, ok=False, uid="a"),
        {"at": up_at, "store": "up"},
        pod(61, "b"),
    )
    assert (lines[2]["breaker"], lines[-1]["breaker"]) == ("CLOSED", breaker)
    assert summary["web"]["TRIPS"] == ("1 (errorRate 1)" if breaker == "OPEN" else "0")


def test_one_line_of_sums_equals_single_outcomes(tmp_path: Path) -> None:
    policy = ONE_ERROR_TRIPS.replace(
        "minimumOutcomes: 1}", "minimumOutcomes: 5}\n    latency: {mean: 2s, interval: 30s}"
    )
    sums = {"service": "web", "succeeded": 3, "failed": 2, "latency": 2.000001}
    one_by_one = [outcome(0, ok=ok, latency=2.000001) for ok in (True, False, True, False, True)]
    statuses = [{"at": 149.999999, "status": "web"}, {"at": 150, "status": "web"}]
    again = [{**single, "at": at} for at in (30, 60, 90, 120) for single in one_by_one]
    single, _ = play_files(tmp_path, policy, *one_by_one, *again, *statuses)
    summed, summary = play_files(
        tmp_path, policy, *({"at": at, "outcomes": sums} for at in (0, 30, 60, 90, 120)), *statuses
    )
    assert summed[-2:] == single[-2:]
    assert [line["breaker"] for line in single[-2:]] == ["CLOSED", "OPEN"]
    assert summary["web"]["TRIPS"] == "1 (latency 1)"
    assert {key: value for key, value in summed[0].items() if key != "at"} == {
        "service": "web",
        "breaker": "CLOSED",
        "generation": 0,
        "openRemaining": 0,
    }


def test_sums_trip_probe_and_close_like_single_outcomes_failures_first() -> None:
    lines, summary = play("tripped_by_sums")
    statuses = [(line["at"], line["breaker"]) for line in lines if "waiting" in line]
    assert statuses == [
        (2, "CLOSED"),  # 59 of 100, twice
        (4, "CLOSED"),  # 600 of 1000, and 99 that are too few
        (6, "OPEN"),
        (17, "HALF_OPEN"),  # one probe succeeded, of two
        (18, "OPEN"),  # 50 successes and a failure
        (29, "CLOSED"),
        (33, "OPEN"),  # a mean of 500.001 ms and one of an hour
    ]
    assert summary["web"]["TRIPS"] == "2 (errorRate 1, latency 1)"


def test_sums_of_another_generation_change_nothing(tmp_path: Path) -> None:
    for generation, breaker in ((0, "OPEN"), (1, "CLOSED")):
        sums = {"service": "web", "failed": 9, "generation": generation}
        lines, _ = play_files(tmp_path, ONE_ERROR_TRIPS, {"at": 0, "outcomes": sums}, {"at": 30, "status": "web"})
        assert lines[-1]["breaker"] == breaker


def test_page_shows_the_results_of_its_two_policies() -> None:
    page, examples = (ROOT / "docs/replay.md").read_text(), ROOT / "docs/examples"
    for name in ("errors", "errors-patient"):
        done = podgate("replay", examples / "errors.jsonl", "--policy", examples / f"{name}.yaml")
        assert done.err in page, name
    assert "for policy in errors errors-patient; do" in page
