"""Outcomes in the recording of `serve --record`: a replay of it trips as the server did."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.harness.raw_http import eventually
from tests.harness.records import AT_US, policy
from tests.harness.server_process import Files, pod, run_server
from webhook.adapters.recorder import WAITING_MAX, Recorder, recorder
from webhook.commands.simulator import Ask
from webhook.core.breaker.outcome_types import Outcomes
from webhook.ports import WatchReports

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [web]}
  breaker:
    outcomes: {source: Pushed, reporters: [edge]}
    errorRate: {interval: 200ms, consecutive: 1, minimumOutcomes: 3}
    openFor: 10m
"""
SILENT = WatchReports(lambda: None, lambda _: None, lambda _: None)


async def test_replay_of_the_record_trips_like_the_server(tmp_path: Path) -> None:
    files, file = Files.create(tmp_path, POLICY), tmp_path / "events.jsonl"
    pushed: list[str] = []
    async with run_server(files, "--record", str(file)) as server:
        assert (await server.create(Ask(pod(), "web", "before")))["allowed"]
        context, token = files.pki.context(files.pki.client("prober")), files.other.token(client_id="edge")
        errors = json.dumps([{"service": "web", "ok": False, "latency": 0.25}] * 5).encode()

        async def is_open_after_more() -> bool:
            code, text = await server.post("/v1/outcomes", errors, token=token, context=context)
            assert code == 200, text
            pushed.append(text)
            [service] = json.loads((await server.get("/status"))[1])["services"]
            return bool(service["breaker"]["state"] == "OPEN")

        await eventually(is_open_after_more)
        assert not (await server.create(Ask(pod(), "web", "after")))["allowed"]
    replayed = await asyncio.to_thread(podgate, "replay", file, "--policy", files.policy)
    assert replayed.code == 0, replayed.err
    decided = {line["uid"]: (line["allowed"], line["breaker"]) for line in replayed.lines if "uid" in line}
    assert decided == {"before": (True, "CLOSED"), "after": (False, "OPEN")}
    assert "1 (errorRate 1)" in replayed.err
    sums = [event["outcomes"] for event in lines(file) if "outcomes" in event]
    assert sum(total["failed"] for total in sums) == 5 * len(pushed)
    assert {(total["service"], total["succeeded"], total["latency"]) for total in sums} == {("web", 0, 0.25)}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def make_recorder(file: Path, sample_every: int = 1) -> Recorder:
    return Recorder(file, sample_every, 1 << 24, SILENT, lambda: AT_US)


def test_outcome_is_recorded_at_its_time_without_generation(file: Path) -> None:
    recording = make_recorder(file)
    midnight_us = AT_US - AT_US % 86_400_000_000
    recording.on_outcomes_recorded("web", [Outcomes(3, 1, 8_000_000, generation=7, age_us=150_000)])
    recording.on_outcomes_recorded(
        "web", [Outcomes(1, 0, 30_000, uid="u1", generation=7), Outcomes(1, 0, 9_000_000_000)]
    )
    recording.close()
    at = (AT_US - midnight_us) / 1_000_000
    assert lines(file)[1:] == [
        {"at": pytest.approx(at - 0.15), "outcomes": {"service": "web", "succeeded": 3, "failed": 1, "latency": 2.0}},
        {"at": at, "outcome": {"service": "web", "ok": True, "latency": 0.03, "uid": "u1"}},
        {"at": at, "outcomes": {"service": "web", "succeeded": 1, "failed": 0, "latency": 3600}},
    ]


def test_sample_records_its_services_only(file: Path) -> None:
    recording = make_recorder(file, sample_every=2)
    recording.on_outcomes_recorded("early", [Outcomes(1, 0, 0)])
    recording.on_policy_loaded(policy("a", "b"))
    for service in ("a", "b"):
        recording.on_outcomes_recorded(service, [Outcomes(1, 0, 0)])
    recording.close()
    assert len([line for line in lines(file) if "outcomes" in line]) == 1


def test_outcomes_fill_at_most_half_of_the_queue(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_PAUSE_SECONDS", 3600)
    recording = make_recorder(file)
    recording.on_outcomes_recorded("web", [Outcomes(1, 0, 0)] * WAITING_MAX)
    assert recording.counts() == {"written": 0, "dropped": WAITING_MAX // 2}
    recording.close()
    assert recording.counts() == {"written": WAITING_MAX // 2, "dropped": WAITING_MAX // 2}
