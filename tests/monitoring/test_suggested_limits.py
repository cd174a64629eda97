"""`podgate policy suggest --prometheus` with the history of a real Prometheus."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.cli.command_runner import podgate, policy_text
from tests.cluster.host_processes import wait_until
from tests.cluster.processes import Processes
from tests.monitoring.programs import programs
from tests.monitoring.prometheus_server import PrometheusServer

HOUR = 3600
HOURS = 30
PEAK_HOUR = 9
"""Hours ago."""
SERVICES = """\
- name: web
  match: {namespaces: [shop]}
  modes: {quota: Audit}
  quota: {windows: [{window: 1m, hard: {pods: 5, cpu: 100}}], standing: {hard: {pods: 500}}}
"""


def make_history(now_seconds: int) -> Iterator[str]:
    """Yield samples each minute, as OpenMetrics: a usual use, and one peak of 40 Pods."""
    rows = {
        ("pods", "1m", ""): (4, 40),
        ("cpu", "1m", ""): (1.5, 1.5),
        ("pods", "standing", ""): (60, 80),
    }
    yield "# TYPE podgate_quota_used gauge"
    for (resource, window, namespace), (usual, peak) in rows.items():
        labels = f'service="web",resource="{resource}",window="{window}",namespace="{namespace}"'
        for minute in range(HOURS * 60, 0, -1):
            value = peak if minute == PEAK_HOUR * 60 else usual
            yield f"podgate_quota_used{{{labels}}} {value} {now_seconds - 60 * minute}"
    yield "# TYPE podgate_outcomes counter"
    for result, share in (("ok", 19), ("ImagePull", 1)):
        labels = f'service="web",source="PodStart",result="{result}"'
        for minute in range(HOURS * 60, 0, -1):
            total = share * (HOURS * 60 - minute)
            yield f"podgate_outcomes_total{{{labels}}} {total} {now_seconds - 60 * minute}"
    yield "# EOF"


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    history, data = tmp_path / "history.txt", tmp_path / "prometheus" / "data"
    history.write_text("\n".join(make_history(int(time.time()))) + "\n")
    data.mkdir(parents=True)
    command = [programs().promtool, "tsdb", "create-blocks-from", "openmetrics", history, data]
    subprocess.run(command, check=True, capture_output=True)
    with closing(Processes(tmp_path)) as processes:
        server = PrometheusServer(processes, [])
        server.start()
        wait_until(lambda: server.is_scraping(0), "Prometheus")
        yield server


def test_limits_fit_what_prometheus_has_measured(prometheus: PrometheusServer, tmp_path: Path) -> None:
    policy, record = tmp_path / "policy.yaml", tmp_path / "events.jsonl"
    policy.write_text(policy_text(SERVICES))
    record.write_text("")
    inputs = ("--policy", policy, "--record", record, "--prometheus", prometheus.url)
    done = podgate("policy", "suggest", *inputs)
    assert done.code == 0, done.err
    [web] = yaml.safe_load(done.out)["services"]
    assert web["quota"] == {
        "windows": [{"window": "1m", "hard": {"pods": 50, "cpu": "1900m"}}],
        "standing": {"hard": {"pods": 100}},
    }
    assert re.search(r"^# measured by Prometheus for (29|30|31) hours, ", done.out, re.MULTILINE)
    assert "; usual 4; now 5" in done.out
    assert " outcomes, " in done.out
    assert "; at most 5% in the hour before " in done.out
    [found] = podgate("policy", "suggest", "web", *inputs, "-o", "json").document["services"]
    assert found["limits"][0]["source"] == "Prometheus"
    assert (found["limits"][0]["largest"], found["limits"][0]["usual"]) == (40, 4)


def test_a_prometheus_that_does_not_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(policy_text(SERVICES))
    (tmp_path / "events.jsonl").write_text("")
    inputs = ("--policy", tmp_path / "policy.yaml", "--record", tmp_path / "events.jsonl")
    gone = podgate("policy", "suggest", *inputs, "--prometheus", "http://127.0.0.1:9")
    assert gone.code == 2
    assert gone.error.startswith("Prometheus: http://127.0.0.1:9/api/v1/query_range: ")
    wrong = podgate("policy", "suggest", *inputs, "--prometheus", "http://u:secret@127.0.0.1:9")
    assert "secret" not in wrong.err
    assert wrong.error.startswith("--prometheus 'http://")
