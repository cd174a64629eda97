"""`podgate policy suggest`: a generated day with a known truth, other inputs, exit codes, and mistakes."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import Done, encode_lines, podgate, policy_text
from tests.replay.generated_day import (
    OUTLIER_AT,
    OUTLIER_PODS,
    CreatedPod,
    find_most_live,
    find_true_peak,
    generate_day,
    write_day,
)
from webhook.core.admission.decision import Half, Verdict
from webhook.core.kubernetes.quantity import Quantity

ROOT = Path(__file__).parents[2]
SECONDS = {"1m": 60, "10m": 600, "1h": 3600}
DAY = generate_day()


def pods_of(service: str) -> list[CreatedPod]:
    spaces = {"web": ["shop"], "batch": ["batch"], "teams": ["team-a"]}[service]
    return [pod for pod in DAY if pod.namespace in spaces]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_day(tmp_path_factory.mktemp("day"), DAY)


@pytest.fixture(scope="module")
def printed(day: tuple[Path, Path]) -> Done:
    record, policy = day
    return podgate("policy", "suggest", "--policy", policy, "--record", record)


@pytest.fixture(scope="module")
def report(day: tuple[Path, Path]) -> dict[str, Any]:
    record, policy = day
    return podgate("policy", "suggest", "--policy", policy, "--record", record, "-o", "json").document


def services(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {service["name"]: service for service in report["services"]}


def limits(service: dict[str, Any], resource: str = "pods") -> dict[str, dict[str, Any]]:
    return {limit["window"]: limit for limit in service["limits"] if limit["resource"] == resource}


def test_limits_of_a_day_are_at_least_the_true_peak_and_at_most_twice_it(report: dict[str, Any]) -> None:
    found = services(report)
    checked = 0
    for name in ("web", "batch", "teams"):
        for window, limit in limits(found[name]).items():
            pods = pods_of(name)
            truth = find_most_live(pods) if window == "standing" else find_true_peak(pods, SECONDS[window])
            assert truth <= limit["hard"] <= 2 * truth, (name, window, limit, truth)
            assert limit["usual"] <= limit["largest"] <= limit["hard"]
            checked += 1
    assert checked == 2 + 2 + 1
    memory = limits(found["batch"], "memory")["10m"]["hard"]
    truth = find_true_peak(pods_of("batch"), 600) * 4 * 2**30
    assert truth <= Quantity.parse(memory).value <= 2 * truth


def merge(policy: Path, part: str, target: Path) -> Path:
    """Write a policy with a printed part merged into its services, as a person would, all in Enforce."""
    document = yaml.safe_load(policy.read_text())
    found = {service["name"]: service for service in document["services"]}
    for service in yaml.safe_load(part)["services"]:
        assert service.pop("match") == found[service["name"]]["match"]
        quota = found[service["name"]].get("quota", {})
        found[service["name"]] |= service
        found[service["name"]]["quota"] = quota | service["quota"]
        found[service["name"]].pop("modes", None)
    target.write_text(yaml.safe_dump(document))
    return target


def test_merged_policy_denies_no_pod_of_the_day(day: tuple[Path, Path], printed: Done, tmp_path: Path) -> None:
    record, policy = day
    merged = merge(policy, printed.out, tmp_path / "merged.yaml")
    done = podgate("replay", record, "--policy", merged)
    decisions = [line["decision"] for line in done.lines if "decision" in line]
    assert set(decisions) == {"Admit"}
    assert len(decisions) == len(DAY)


def test_printed_part_is_a_policy_without_mistakes(printed: Done, tmp_path: Path) -> None:
    part = tmp_path / "part.yaml"
    part.write_text(printed.out)
    lint = podgate("policy", "lint", part)
    assert (lint.code, lint.out) == (0, "")
    assert [service["name"] for service in yaml.safe_load(printed.out)["services"]] == ["web", "batch", "teams"]


def test_the_planted_outlier_is_named_and_nothing_else(report: dict[str, Any], printed: Done) -> None:
    outliers = [limit for service in report["services"] for limit in service["limits"] if "outlier" in limit]
    [burst] = outliers
    assert (burst["window"], burst["resource"]) == ("1m", "pods")
    assert burst["outlier"]["workload"] == "Deployment shop/load-test"
    assert burst["outlier"]["amount"] == OUTLIER_PODS
    assert burst["outlier"]["inside"]
    quiet = [pod for pod in pods_of("web") if "load-test" not in pod.owner]
    assert burst["outlier"]["without"] == pytest.approx(find_true_peak(quiet, 60), abs=1)
    assert burst["outlier"]["without"] <= burst["outlier"]["hardWithout"] <= 2 * burst["outlier"]["without"]
    assert "outlier: pods in 1m: 120 by Deployment shop/load-test at 2026-11-24T14:05:" in printed.out
    assert OUTLIER_AT == 14 * 3600 + 5 * 60


def test_unseen_times_and_services_are_named(report: dict[str, Any], printed: Done) -> None:
    assert report["notSeen"] == ["no weekend", "no month end: no monthly job"]
    assert limits(services(report)["idle"]) == {}
    lines = printed.out.splitlines()
    assert lines[0].startswith("# 3341 requests in 24 hours, 2026-11-24T00:00:47Z to 2026-11-24T23:59:53Z, from ")
    assert "# idle: no requests seen: no numbers" in lines
    assert "  # proof: 3081 past Pods replayed: 0 denied" in lines


def test_the_largest_use_says_when_and_by_whom(report: dict[str, Any]) -> None:
    night = limits(services(report)["batch"])["10m"]
    assert (night["largest"], night["by"]) == (60, [{"workload": "CronJob batch/report", "amount": 60}])
    assert night["at"].startswith("2026-11-24T02:0")


def test_four_hours_of_a_day_are_not_taken_for_a_day(tmp_path: Path) -> None:
    record, policy = write_day(tmp_path, [pod for pod in DAY if 9 * 3600 <= pod.at < 13 * 3600], with_ends=False)
    done = podgate("policy", "suggest", "web", "--policy", policy, "--record", record)
    assert " requests in 4 hours, " in done.out
    unseen = "no whole night (00:00-06:00 UTC): no nightly batch; no whole day; no weekend"
    assert f"# not seen: {unseen}; no month end: no monthly job" in done.out
    assert "standing" not in done.out
    assert "  # live Pods were not seen: these requests do not tell when Pods ended" in done.out
    assert [service["name"] for service in yaml.safe_load(done.out)["services"]] == ["web"]


def encode_decisions(pods: list[CreatedPod], denied: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield both decision records of each Pod, as `podgate decisions -o json` prints them."""
    for number, pod in enumerate(pods):
        event = pod.event
        at = f"2026-11-24T{int(pod.at) // 3600:02}:{int(pod.at) // 60 % 60:02}:{pod.at % 60:09.6f}Z"
        common = {
            "at": at,
            "replica": "a",
            "operation": "CREATE",
            "namespace": pod.namespace,
            "user": pod.user,
            "service": "web",
            "owner": {"kind": "ReplicaSet", "name": pod.owner.partition("/")[2], "uid": pod.owner},
        }
        name = event["pod"]["metadata"]["generateName"]
        yield {
            **common,
            "id": f"{2 * number:09}",
            "half": Half.MUTATE,
            "name": name,
            "decision": Verdict.ADMIT,
            "status": {"code": 200},
            "recorded": event["pod"],
        }
        metadata = {**event["pod"]["metadata"], "annotations": {"podgate.io/policy-hash": "0" * 16}}
        is_denied = pod.uid in denied
        yield {
            **common,
            "id": f"{2 * number + 1:09}",
            "half": Half.VALIDATE,
            "name": f"{name}{number}",
            "uid": pod.uid,
            "decision": Verdict.DENY if is_denied else Verdict.ADMIT,
            "status": {"code": 429 if is_denied else 200},
            "recorded": {**event["pod"], "metadata": metadata},
        }


def test_denied_requests_of_decisions_are_no_use(tmp_path: Path) -> None:
    pods = [pod for pod in pods_of("web") if pod.at < 15 * 3600]
    burst = frozenset(pod.uid for pod in pods if "load-test" in pod.owner)
    (tmp_path / "policy.yaml").write_text(policy_text("- {name: web, match: {namespaces: [shop]}}\n"))
    (tmp_path / "decisions.jsonl").write_text("".join(encode_lines(encode_decisions(pods, burst))))
    inputs = ("--policy", tmp_path / "policy.yaml", "--decisions", tmp_path / "decisions.jsonl")
    [web] = podgate("policy", "suggest", *inputs, "-o", "json").document["services"]
    quiet = find_true_peak([pod for pod in pods if pod.uid not in burst], 60)
    assert (web["requests"], web["denied"]) == (len(pods), OUTLIER_PODS)
    assert quiet <= limits(web)["1m"]["hard"] <= 2 * quiet
    assert web["proof"] == {"pods": len(pods) - OUTLIER_PODS, "denied": 0, "example": ""}
    text = podgate("policy", "suggest", *inputs).out
    assert f"{OUTLIER_PODS} of them denied: no use, as they may ask for the same Pods again" in text


def test_a_limit_that_fits_is_kept(tmp_path: Path) -> None:
    record, _ = write_day(tmp_path, pods_of("teams"))
    policy = tmp_path / "fits.yaml"
    quota = "{per: Namespace, windows: [{window: 1h, hard: {pods: 20}}]}"
    policy.write_text(policy_text(f'- {{name: teams, match: {{namespaces: ["team-*"]}}, quota: {quota}}}\n'))
    done = podgate("policy", "suggest", "--policy", policy, "--record", record)
    assert all(line.startswith("#") for line in done.out.splitlines())
    assert "# teams: nothing to change" in done.out
    assert "# teams: pods in 1h: 20: kept; largest 12 in namespace team-a at 2026-11-24T" in done.out


def test_a_window_longer_than_the_time_that_was_seen_has_no_number(tmp_path: Path) -> None:
    record, policy = tmp_path / "events.jsonl", tmp_path / "policy.yaml"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    record.write_text("".join(encode_lines({"at": 9 * at, "pod": pod, "namespace": "shop"} for at in range(60))))
    windows = "[{window: 1m, hard: {pods: 90}}, {window: 1h, hard: {pods: 900}}]"
    web = "- {name: web, match: {namespaces: [shop]}QUOTA}\n"
    policy.write_text(policy_text(web.replace("QUOTA", f", quota: {{windows: {windows}}}")))
    inputs = ("policy", "suggest", "--policy", policy, "--record", record)
    done = podgate(*inputs)
    [found] = yaml.safe_load(done.out)["services"]
    assert [window["hard"]["pods"] for window in found["quota"]["windows"]] == [9, 900]
    assert "pods: 900  # kept: less time was seen than this window is long" in done.out
    policy.write_text(policy_text(web.replace("QUOTA", "")))
    done = podgate(*inputs)
    [found] = yaml.safe_load(done.out)["services"]
    assert [window["window"] for window in found["quota"]["windows"]] == ["1m"]
    assert "  # no number for 1h: less time was seen" in done.out


def test_live_pods_of_a_record_raise_a_limit_and_never_lower_it(tmp_path: Path) -> None:
    record, policy = write_day(tmp_path, pods_of("batch"))
    limits_of: dict[int, int] = {}
    for hard in (10, 5000):
        quota = f"{{standing: {{hard: {{pods: {hard}}}}}}}"
        policy.write_text(policy_text(f"- {{name: batch, match: {{namespaces: [batch]}}, quota: {quota}}}\n"))
        done = podgate("policy", "suggest", "--policy", policy, "--record", record, "-o", "json")
        [limit] = done.document["services"][0]["limits"]
        limits_of[hard] = limit["hard"]
    truth = find_most_live(pods_of("batch"))
    assert truth <= limits_of[10] <= 2 * truth
    assert limits_of[5000] == 5000


def test_labels_that_are_called_like_kinds_of_events_change_nothing(tmp_path: Path) -> None:
    policy, found = tmp_path / "policy.yaml", []
    quota = "{windows: [{window: 1m, hard: {pods: 90}}], standing: {hard: {pods: 5}}}"
    policy.write_text(policy_text(f"- {{name: web, match: {{namespaces: [shop]}}, quota: {quota}}}\n"))
    for labels in ({}, {"deleted": "no", "outcome": "good", "recorded": "yes"}):
        record = tmp_path / "events.jsonl"
        pod = {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"name": "c"}]}}
        record.write_text("".join(encode_lines({"at": 9 * at, "pod": pod, "namespace": "shop"} for at in range(60))))
        found.append(podgate("policy", "suggest", "--policy", policy, "--record", record).out)
    assert found[0] == found[1]


def test_limits_of_a_pool_are_of_all_its_members(tmp_path: Path) -> None:
    record, policy = tmp_path / "events.jsonl", tmp_path / "policy.yaml"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    asks = [{"at": number, "pod": pod, "namespace": ("a", "b")[number % 2]} for number in range(60)]
    record.write_text("".join(encode_lines(asks)))
    member = (
        "- {name: NAME, pool: both, match: {namespaces: [NAME]}, modes: {quota: Audit},"
        " quota: {windows: [{window: 1m, hard: {pods: 2}}]}}\n"
    )
    members = "".join(member.replace("NAME", name) for name in "ab")
    policy.write_text(policy_text(members, "pools: [{name: both, windows: [{window: 1m, hard: {pods: 3}}]}]"))
    done = podgate("policy", "suggest", "--policy", policy, "--record", record)
    document = yaml.safe_load(done.out)
    assert document["pools"] == [{"name": "both", "windows": [{"window": "1m", "hard": {"pods": 75}}]}]
    assert [service["quota"]["windows"][0]["hard"] for service in document["services"]] == [{"pods": 38}, {"pods": 38}]
    assert "times of day are unknown" in done.out
    (tmp_path / "part.yaml").write_text(done.out)
    assert podgate("policy", "lint", tmp_path / "part.yaml").code == 0


def test_breaker_is_set_above_the_noise_of_starts(tmp_path: Path) -> None:
    record, policy = tmp_path / "events.jsonl", tmp_path / "policy.yaml"
    starts = [
        {
            "at": number,
            "outcome": {"service": "web", "ok": number % 5 > 0, "latency": 2 + number % 3, "uid": f"u{number}"},
        }
        for number in range(600)
    ]
    record.write_text("".join(encode_lines(starts)))
    policy.write_text(policy_text("- {name: web, match: {namespaces: [shop]}}\n"))
    [web] = podgate("policy", "suggest", "--policy", policy, "--record", record, "-o", "json").document["services"]
    assert (web["outcomes"]["failed"], web["outcomes"]["noisePercent"]) == (120, 20)
    errors = {"percent": 60, "interval": "1m", "consecutive": 3, "minimumOutcomes": 10}
    assert web["breaker"] == {"outcomes": {"source": "PodStart", "startDeadline": "5m"}, "errorRate": errors}
    text = podgate("policy", "suggest", "--policy", policy, "--record", record).out
    assert "# 600 starts, 120 failed; usual 3s, longest 4s; noise 20% failed" in text
    (tmp_path / "part.yaml").write_text(text)
    assert podgate("policy", "lint", tmp_path / "part.yaml").code == 0


def test_mistakes_end_with_2_and_an_unknown_service_with_4(day: tuple[Path, Path], tmp_path: Path) -> None:
    record, policy = day
    unknown = podgate("policy", "suggest", "nope", "--policy", policy, "--record", record)
    assert unknown.code == 4
    assert unknown.error == "no service 'nope': the policy has web, batch, teams, idle"
    both = podgate("policy", "suggest", "--policy", policy, "--record", record, "--decisions", record)
    assert (both.code, both.error[:37]) == (2, "--record and --decisions: both are gi")
    gone = podgate("policy", "suggest", "--policy", policy, "--record", tmp_path / "none")
    assert gone.error.startswith(f"{tmp_path / 'none'}: No such file or directory")
    (tmp_path / "bad.jsonl").write_text('{"at": 1, "pod": 3, "namespace": "shop"}\n{"at": 2, "deleted": "u\\q"}\n')
    bad = podgate("policy", "suggest", "--policy", policy, "--record", tmp_path / "bad.jsonl")
    assert bad.error.startswith(f"{tmp_path / 'bad.jsonl'}:1: pod: 3: Expected `object`, got `int`")
    since = podgate("policy", "suggest", "--policy", policy, "--record", record, "--since", "1h")
    assert since.error.startswith("--since: with a file of requests: ")
    live = podgate("policy", "suggest", "--record", record, "--kubeconfig", tmp_path / "none")
    assert live.code == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("username",), "--prometheus-username-file, --prometheus-password-file: one without the other: give both"),
        (("password",), "--prometheus-username-file, --prometheus-password-file: one without the other: give both"),
        (
            ("token", "username", "password"),
            "--prometheus-token-file: beside a user: a request has a token or a password: give one of them",
        ),
    ],
)
def test_credentials_for_prometheus_are_a_token_or_a_user_with_a_password(options: tuple[str, ...], error: str) -> None:
    given = [f"--prometheus-{name}-file=x" for name in options]
    done = podgate("policy", "suggest", "--prometheus=http://127.0.0.1:9", *given)
    assert (done.code, done.error) == (2, error)


def test_a_record_on_standard_input(day: tuple[Path, Path]) -> None:
    record, policy = day
    named, piped = (
        podgate("policy", "suggest", "--policy", policy, "--record", path, "-o", "json", stdin=record.read_bytes())
        for path in (record, "-")
    )
    assert {**json.loads(piped.out), "source": ""} == {**json.loads(named.out), "source": ""}
    assert json.loads(piped.out)["source"] == "-"


def test_the_page_shows_what_its_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, _, shown = (ROOT / "docs/suggest.md").read_text().split("```")[1:4]
    printed = podgate(*shlex.split(command.removeprefix("sh\n"))[1:]).out.splitlines()
    for line, expected in zip(printed, shown.removeprefix("yaml\n").rstrip().splitlines(), strict=True):
        assert line.startswith(expected.removesuffix("...")), line


def test_a_part_for_pods_of_daemon_sets_is_valid_too(tmp_path: Path) -> None:
    record, policy, part = (tmp_path / name for name in ("events.jsonl", "policy.yaml", "part.yaml"))
    owner = {"kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    pod = {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"containers": [{"name": "c"}]}}
    user = "system:serviceaccount:kube-system:daemon-set-controller"
    asks = [{"at": at, "pod": pod, "namespace": "shop", "user": user} for at in (0, 3600)]
    record.write_text("".join(encode_lines(asks)))
    service = "- {name: agents, match: {namespaces: [shop], ownerKinds: [DaemonSet]}}\n"
    policy.write_text(policy_text(service, "exemptions: {daemonSets: false}"))
    part.write_text(podgate("policy", "suggest", "--policy", policy, "--record", record).out)
    assert yaml.safe_load(part.read_text())["services"][0]["quota"]["windows"][0]["hard"] == {"pods": 2}
    assert podgate("policy", "lint", part).code == 0


def test_breaker_of_pushed_outcomes_keeps_its_reporters_and_other_triggers(tmp_path: Path) -> None:
    record, policy, part = (tmp_path / name for name in ("events.jsonl", "policy.yaml", "part.yaml"))
    sums = {"service": "web", "succeeded": 60, "failed": 40, "latency": 0.1}
    record.write_text("".join(encode_lines({"at": at, "outcomes": sums} for at in range(5))))
    breaker = (
        "{outcomes: {source: Pushed, reporters: [edge]}, errorRate: {percent: 30, interval: 1s, consecutive: 2},"
        " latency: {mean: 1s}, openFor: 10s}"
    )
    policy.write_text(policy_text(f"- {{name: web, match: {{namespaces: [shop]}}, breaker: {breaker}}}\n"))
    done = podgate("policy", "suggest", "--policy", policy, "--record", record)
    part.write_text(done.out)
    [web] = yaml.safe_load(done.out)["services"]
    assert web["breaker"] == {
        "outcomes": {"source": "Pushed", "reporters": ["edge"]},
        "errorRate": {"percent": 70, "interval": "1s", "consecutive": 2, "minimumOutcomes": 10},
    }
    assert "  # halfway from the noise, 40%, to all, and at least 50%" in done.out
    assert podgate("policy", "lint", part).code == 0
