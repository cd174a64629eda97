"""`serve --record`: its file replays to the same decisions, and no error of the file stops a review."""

import asyncio
import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.command_runner import podgate
from tests.harness.records import ADMITTED, AT_NS, AT_US, QUOTA_DENIED, changed, policy
from tests.harness.server_process import Files, pod, run_server
from webhook.adapters.recorder import WAITING_MAX, Recorder, recorder
from webhook.adapters.recorder.file import RecordFile
from webhook.commands.simulator import Ask
from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.policy.model import LoadedPolicy
from webhook.core.reporting.replay_record import make_pod_event
from webhook.errors import UserError
from webhook.ports import Review, WatchReports

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {name: prod, windows: [{window: 1h, hard: {pods: 12, cpu: "6"}}]}
services:
- name: payment-api
  pool: prod
  failureMode: Closed
  match: {namespaces: [payments]}
  placement: {schedulerName: podgate-scheduler, nodeSelector: {disk: ssd}, onConflict: {default: Deny}}
  resources: {container: {defaultRequest: {cpu: 500m}}}
  quota: {windows: [{window: 1h, hard: {pods: 8}}]}
- name: batch
  pool: prod
  match: {namespaces: ["batch-*"]}
  quota: {windows: [{window: 1h, hard: {pods: 4}}]}
  breaker: {quotaExceeded: {count: 3, within: 1h, countBy: Request}, openFor: 1h}
"""
MIDNIGHT_US = AT_US - AT_US % 86_400_000_000


@dataclass
class RecorderReports:
    """The troubles that a recorder reported."""

    troubles: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)

    @property
    def reports(self) -> WatchReports:
        return WatchReports(lambda: None, self.troubles.append, self.over.append)


@pytest.fixture
def reported() -> RecorderReports:
    return RecorderReports()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


Start = Callable[..., Recorder]


@pytest.fixture
def start(path: Path, reported: RecorderReports, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a recorder into `path` that writes on request or when closed; open ones are closed after the test."""
    monkeypatch.setattr(recorder, "_PAUSE_SECONDS", 3600)
    started: list[Recorder] = []

    def start(sample_every: int = 1, bytes_max: int = 1 << 20, now_us: int = AT_US) -> Recorder:
        started.append(Recorder(path, sample_every, bytes_max, reported.reports, lambda: now_us))
        return started[-1]

    yield start
    for running in started:
        running.close()


def review(uid: str, service: str | None = "payment-api", *, after_us: int = 0, **decided: Any) -> Review:
    metadata = PodMetadata(name="web", namespace="payments", uid=uid)
    asked = Request(
        uid=f"review-of-{uid}",
        operation="CREATE",
        resource="pods",
        sub_resource="",
        namespace="payments",
        user="alice",
        dry_run=False,
        pod=Pod(metadata, PodSpec(containers=(Container(name="c"),))),
        old_pod=None,
    )
    decision = changed(ADMITTED, service=service, **decided)
    return Review(decision, None, AT_NS + after_us * 1000, 0, request=asked)


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def uids(path: Path) -> list[str]:
    return [line["uid"] for line in lines(path) if "pod" in line]


async def test_record_of_a_server_replays_to_the_same_decisions(tmp_path: Path) -> None:
    files = Files.create(tmp_path, POLICY)
    file = tmp_path / "events.jsonl"
    answers: dict[str, tuple[bool, int]] = {}
    async with run_server(files, "--record", str(file)) as server:

        async def ask(uid: str, namespace: str, *, dry_run: bool = False, **spec: Any) -> None:
            response = await server.create(Ask(pod(**spec), namespace, uid, dry_run=dry_run))
            answers[uid] = (response["allowed"], response.get("status", {}).get("code", 200))

        await ask("conflict", "payments", schedulerName="another")
        await ask("peek", "payments", dry_run=True)
        await asyncio.gather(*(ask(f"pay-{number}", "payments") for number in range(10)))
        await ask("unmatched", "tools")
        for number in range(9):
            requests = {"requests": {"cpu": "400m"}}
            await ask(f"batch-{number}", "batch-1", containers=[{"name": "c", "resources": requests}])
        await ask("batch-0", "batch-1")  # again: it is answered as before

    replayed = await asyncio.to_thread(podgate, "replay", file, "--policy", files.policy)
    assert replayed.code == 0, replayed.err
    decided_by_replay = {
        line["uid"]: (line["allowed"], line["status"]["code"]) for line in replayed.lines if "uid" in line
    }
    assert decided_by_replay == answers
    assert {code for _, code in answers.values()} == {200, 403, 429, 503}


def test_record_is_private_and_begins_with_its_header(path: Path, start: Start) -> None:
    recording = start()
    recording.on_policy_loaded(policy("payment-api"))
    recording.on_policy_loaded(policy("payment-api"))  # reported again after a bad one
    recording.on_reviewed(review("u1"))
    recording.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, loaded, asked = lines(path)
    assert first == {"at": 0, "recorded": {"since": "2027-01-15T00:00:00Z", "sampleEvery": 1}}
    at = (AT_US - MIDNIGHT_US) / 1e6
    assert loaded == {"at": at, "recorded": {"policyHash": "0123456789abcdef"}}
    assert (asked["at"], asked["uid"]) == (at, "u1")
    assert recording.counts() == {"written": 2, "dropped": 0}


def test_only_validated_reviews_are_recorded(path: Path, start: Start) -> None:
    recording = start()
    recording.on_reviewed(review("mutated", half=Half.MUTATE))
    recording.on_reviewed(replace(review("unasked"), request=None))
    recording.on_reviewed(review("judged"))
    recording.close()
    assert uids(path) == ["judged"]


def test_time_is_the_stores_and_never_goes_back(path: Path, start: Start) -> None:
    recording, receipt = start(), QUOTA_DENIED.charge.receipt
    assert receipt is not None
    recording.on_reviewed(review("by-the-wall"))
    recording.on_reviewed(review("by-the-store", after_us=100, receipt=replace(receipt, at_us=AT_US + 5_000_100)))
    recording.on_reviewed(review("after-it", after_us=200))
    recording.on_reviewed(review("late", after_us=-900, receipt=replace(receipt, at_us=AT_US + 5_000_050)))
    recording.close()
    since = [round(line["at"] * 1e6) - (AT_US - MIDNIGHT_US) for line in lines(path) if "uid" in line]
    assert since == [0, 5_000_100, 5_000_200, 5_000_200]


def test_labels_of_a_namespace_are_written_when_first_seen_and_when_changed(path: Path, start: Start) -> None:
    labels: dict[str, Mapping[str, str]] = {}
    recording = start()
    recording.watch_namespaces(labels.get)
    recording.on_reviewed(review("unknown"))
    for uid, tier in (("first", "prod"), ("same", "prod"), ("changed", "test")):
        labels["payments"] = {"tier": tier}
        recording.on_reviewed(review(uid))
    recording.close()
    shown = [line.get("uid") or line.get("namespaceLabels") for line in lines(path)[1:]]
    assert shown == [
        "unknown",
        {"payments": {"tier": "prod"}},
        "first",
        "same",
        {"payments": {"tier": "test"}},
        "changed",
    ]


def pools(*members: str) -> LoadedPolicy:
    """Return a policy whose services `web-prod` and `api-prod` are in pool `prod`, and so on."""
    loaded = policy(*members)
    services = (
        replace(service, pool=service.name.partition("-")[2] or None) if "-" in service.name else service
        for service in loaded.policy.services
    )
    return replace(loaded, policy=replace(loaded.policy, services=tuple(services)))


def test_sample_has_whole_pools_and_is_the_same_on_every_server(path: Path, start: Start) -> None:
    members = [f"{name}-{pool}" for pool in "abcdef" for name in ("web", "api")] + ["alone", "other"]
    recording = start(sample_every=4)
    recording.on_policy_loaded(pools(*members))
    for name in (*members, None):
        recording.on_reviewed(review(f"of {name}", name))
    recording.close()
    kept = {uid.removeprefix("of ") for uid in uids(path)}
    tags = {name.partition("-")[2] or name for name in kept}
    assert len(tags) == 2, "a fourth of eight"
    assert kept == {name for name in members if (name.partition("-")[2] or name) in tags}
    reordered = recorder._select_services(pools(*reversed(members)).policy, 4)
    assert kept == reordered


def test_sample_is_never_empty(path: Path, start: Start) -> None:
    recording = start(sample_every=1000)
    recording.on_policy_loaded(policy("payment-api"))
    recording.on_reviewed(review("u1"))
    recording.close()
    assert uids(path) == ["u1"]


def test_record_continues_after_its_last_whole_line_in_its_own_time(path: Path, start: Start) -> None:
    first = start()
    first.on_reviewed(review("u1"))
    first.close()
    with path.open("ab") as stream:
        stream.write(b'{"at":1,"pod":{"meta')  # the server was killed
    path.chmod(0o644)
    next_day_us = AT_US + 86_400_000_000
    second = start(now_us=next_day_us)
    second.on_reviewed(review("u2", after_us=next_day_us - AT_US))
    second.close()
    back = start(now_us=AT_US)  # the wall clock was set back meanwhile
    back.on_reviewed(review("u3"))
    back.close()
    assert uids(path) == ["u1", "u2", "u3"]
    ats = [line["at"] for line in lines(path)]
    assert ats == sorted(ats)
    assert ats[-1] == ats[-2] == (next_day_us - MIDNIGHT_US) / 1e6
    assert [line for line in lines(path) if "recorded" in line] == lines(path)[:1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to("/dev/null"), "Too many levels of symbolic links"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_text("apiVersion: v1\n"), "it holds something else than a record of this server"),
        (lambda path: path.write_text('{"at": 1, "status": "a"}\n'), "it holds something else than a record"),
        (lambda path: path.write_text("{}"), "it holds something else than a record of this server"),
    ],
    ids=["folder", "link", "pipe", "text", "other events", "no line"],
)
def test_unusable_file_is_an_error_at_the_start(
    path: Path, start: Start, make: Callable[[Path], object], reason: str
) -> None:
    make(path)
    with pytest.raises(UserError) as caught:
        start()
    assert str(caught.value).startswith(f"--record: {path}: {reason}")
    assert caught.value.remedy


def test_missing_folder_and_a_file_in_use_are_errors(path: Path, start: Start) -> None:
    with pytest.raises(UserError, match=r"--record: .*: No such file or directory"):
        RecordFile(path / "deeper" / "file", 1000, 1, AT_US)
    start()
    with pytest.raises(UserError, match=r"--record: .*: another server records into it"):
        start()


def test_full_record_stops_with_whole_lines_and_is_reported_once(
    path: Path, start: Start, reported: RecorderReports
) -> None:
    recording = start(bytes_max=450)
    for number in range(4):
        recording.on_reviewed(review(f"u{number}"))
        recording._write_all()
    recording.close()
    assert uids(path) == ["u0", "u1"]
    assert path.stat().st_size <= 450
    assert reported.troubles == ["it has reached --record-max-bytes: nothing more is recorded"]
    recording.on_reviewed(review("later"))
    assert recording.counts() == {"written": 2, "dropped": 3}


def test_too_small_record_limit_is_an_error_at_the_start(start: Start) -> None:
    with pytest.raises(UserError, match=r"--record-max-bytes: 10: too few for a single line"):
        start(bytes_max=10)


def test_full_disk_loses_only_the_unwritten_lines(
    path: Path, start: Start, reported: RecorderReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = start()
    recording.watch_namespaces({"payments": {"tier": "prod"}}.get)
    real, left = os.write, 100_000

    def write(fd: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(fd, data[:left])
        left -= count
        return count

    monkeypatch.setattr("webhook.adapters.recorder.file.os.write", write)
    recording.on_reviewed(review("before"))
    recording._write_all()
    left = 30  # it breaks off within a line
    for uid in ("lost-1", "lost-2"):
        recording.on_reviewed(review(uid))
        recording._write_all()
    left = 100_000
    recording.on_reviewed(review("after"))
    recording.close()
    assert uids(path) == ["before", "after"]
    assert [line["namespaceLabels"] for line in lines(path) if "namespaceLabels" in line] == [
        {"payments": {"tier": "prod"}}
    ] * 2
    assert reported.troubles == reported.over == ["No space left on device"]
    assert recording.counts() == {"written": 2, "dropped": 2}


def test_hanging_disk_blocks_no_review_and_dropped_lines_are_counted(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume, hangs, append = threading.Event(), threading.Event(), RecordFile.append

    def append_slowly(file: RecordFile, data: list[bytes]) -> None:
        hangs.set()
        resume.wait()
        append(file, data)

    recording = start()
    monkeypatch.setattr(RecordFile, "append", append_slowly)
    recording.on_reviewed(review("first"))
    recording._ending.set()  # the thread wakes up
    assert hangs.wait(10)
    for number in range(WAITING_MAX + 7):
        recording.on_reviewed(review(f"u{number}"))
    assert recording.counts() == {"written": 0, "dropped": 7}
    resume.set()
    recording.close()
    assert uids(path) == ["first", *(f"u{number}" for number in range(WAITING_MAX))]


def test_defect_loses_one_line_and_not_the_record(
    path: Path, start: Start, reported: RecorderReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = start()
    with monkeypatch.context() as patch:
        patch.setattr(recorder, make_pod_event.__name__, lambda *_: 1 / 0)
        recording.on_reviewed(review("lost"))
        recording._write_all()
    recording.on_reviewed(review("kept"))
    recording.close()
    assert uids(path) == ["kept"]
    assert len(reported.troubles) == len(reported.over) == 1
    assert recording.counts() == {"written": 1, "dropped": 1}
