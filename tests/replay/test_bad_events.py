import json
from pathlib import Path

import pytest

from tests.cli.command_runner import Json, podgate, policy_text
from tests.harness.nesting import TOO_DEEP

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}},"
    " quota: {windows: [{window: 1m, hard: {cpu: 1}}]}}\n"
    '- {name: teams, match: {namespaces: ["team-*"], namespaceSelector: {matchLabels: {tier: prod}}},'
    " quota: {windows: [{window: 1m, hard: {pods: 1}}]}}\n"
)
GOOD = '{"at": 5, "status": "web"}'
KINDS = "give exactly one of pod, outcome, deleted, refused, status, namespaceLabels, policy"


def pod_event(**changed: object) -> str:
    event: Json = {"at": 5, "namespace": "shop", "pod": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}
    return json.dumps({key: value for key, value in (event | changed).items() if value != "ABSENT"})


def outcome(**changed: object) -> str:
    event: Json = {"service": "web", "ok": True}
    return json.dumps({"at": 5, "outcome": {k: v for k, v in (event | changed).items() if v != "ABSENT"}})


def container(cpu: object) -> Json:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}


MISTAKES = {
    "nope": "not JSON: ",
    '{"at": 5, "status": "we': "not JSON: ",
    '{"at": 1e400, "status": "web"}': "not JSON: ",
    "[" * 5000: "not JSON: ",
    f'{{"at": 5, "status": "web", "x": {TOO_DEEP}}}': "not JSON: nested deeper than 128 levels",
    "[]": "not a JSON object",
    "7": "not a JSON object",
    "{}": f"no event in the line: {KINDS}",
    '{"at": 5}': f"no event in the line: {KINDS}",
    '{"at": 5, "status": "web", "refused": "u"}': f"refused and status in one line: {KINDS}",
    '{"status": "web"}': "status: Object missing required field `at`",
    '{"at": 4, "status": "web"}': "at: 4: time does not go back, the line before was at 5",
    '{"at": -1, "status": "web"}': "at: -1: Expected `int` >= 0",
    '{"at": 1e300, "status": "web"}': "at: 1e300: Expected `float` <= 9000000000",
    '{"at": "5", "status": "web"}': 'at: "5": Expected `int | float`, got `str`',
    '{"at": true, "status": "web"}': "at: true: Expected `int | float`, got `bool`",
    '{"at": 5, "status": "nobody"}': "'nobody': no such service in the policy: its services are web, teams",
    '{"at": 5, "status": 7}': "status: 7: Expected `str`, got `int`",
    '{"at": 5, "status": "web", "more": 1}': "status: Object contains unknown field `more`",
    '{"at": 5, "deleted": 7}': "deleted: 7: Expected `str`",
    '{"at": 5, "refused": ""}': 'refused: "": Expected `str` of length >= 1',
    '{"at": 5, "namespaceLabels": []}': "namespaceLabels: []: Expected `object`",
    '{"at": 5, "namespaceLabels": {"shop": {"a": 1}}}': 'namespaceLabels: {"shop":{"a":1}}: Expected `str`, got `int`',
    '{"at": 5, "policy": "nowhere.yaml"}': "nowhere.yaml: cannot be read: No such file or directory",
    '{"at": 5, "policy": "bad.yaml"}': "bad.yaml: 2 mistakes in the policy",
    '{"at": 5, "policy": 3}': "policy: 3: Expected `str`, got `int`",
    '{"at": 5, "store": "gone"}': "store: \"gone\": Invalid enum value 'gone'",
    '{"at": 5, "recorded": {"by": "me"}}': "Object contains unknown field `by`",
    '{"at": 5, "recorded": {"since": "foo"}}': 'recorded.since: "foo": not an RFC 3339 time',
    '{"at": 5, "recorded": {"since": "2026-11-24"}}': 'recorded.since: "2026-11-24": not an RFC 3339 time',
    '{"at": 5, "recorded": {"since": "2026-11-31T00:00:00Z"}}': "no such day or time",
    '{"at": 5, "recorded": {"since": 7}}': "recorded.since: 7: Expected `str | null`",
    '{"at": 5, "recorded": {"sampleEvery": 0}}': "recorded.sampleEvery: 0: Expected `int` >= 1",
    outcome(service="nobody"): "'nobody': no such service",
    '{"at": 5, "outcomes": {"service": "nobody"}}': "'nobody': no such service",
    '{"at": 5, "outcomes": {"service": "web", "failed": -1}}': "outcomes.failed: -1: Expected `int` >= 0",
    '{"at": 5, "outcomes": {"service": "web", "latency": 3601}}': "outcomes.latency: 3601: Expected `int` <= 3600",
    '{"at": 5, "outcomes": {"service": "web", "uid": "u"}}': "Object contains unknown field `uid`",
    outcome(service="ABSENT"): "Object missing required field `service`",
    outcome(ok="yes"): 'outcome.ok: "yes": Expected `bool`, got `str`',
    outcome(ok="ABSENT"): "Object missing required field `ok`",
    outcome(latency=-1): "outcome.latency: -1: Expected `int` >= 0",
    outcome(latency="1s"): 'outcome.latency: "1s": Expected `int | float`',
    outcome(uid=7): "outcome.uid: 7: Expected `str | null`",
    outcome(generation="4"): 'outcome.generation: "4": Expected `int | null`',
    outcome(latencyMs=3): "Object contains unknown field `latencyMs`",
    '{"at": 5, "outcome": []}': "outcome: []: Expected `object`",
    pod_event(namespace="ABSENT"): "pod: Object missing required field `namespace`",
    pod_event(namespace=7): "namespace: 7: Expected `str`",
    pod_event(namespace=""): 'namespace: "": Expected `str` of length >= 1',
    pod_event(uid=""): 'uid: "": Expected `str` of length >= 1',
    pod_event(uid=7): "uid: 7: Expected `str | null`",
    pod_event(dryRun="no"): 'dryRun: "no": Expected `bool`',
    pod_event(dryrun=True): "pod: Object contains unknown field `dryrun`",
    pod_event(user=7): "user: 7: Expected `str`",
    pod_event(operation="create"): "operation: \"create\": Invalid enum value 'create'",
    pod_event(subResource=7): "subResource: 7: Expected `str`",
    pod_event(operation="UPDATE", oldPod={}): "oldPod: Object missing required field `metadata`",
    pod_event(operation="UPDATE", pod={"metadata": "x", "spec": {}}): "pod.metadata: 'x': not an object",
    '{"at": 5, "policy": "a\\u0000b"}': 'a\\u0000b": cannot be read: ',
    pod_event(oldPod=7): "oldPod: 7: Expected `object | null`",
    pod_event(pod=7): "pod: 7: Expected `object`",
    pod_event(pod={}): "pod: Object missing required field `spec`",
    pod_event(pod={"metadata": [], "spec": {}}): "pod.metadata: []: not an object",
    pod_event(
        pod={"metadata": {"labels": "x"}, "spec": {}}
    ): "pod: Expected `object | null`, got `str` - at `$.metadata.labels`",
    pod_event(pod={"metadata": {}, "spec": None}): "pod: Expected `object`, got `null` - at `$.spec`",
    pod_event(pod=container("abc")): "cpu: 'abc': not a Kubernetes quantity",
    pod_event(namespace="team-a"): "namespace: 'team-a': the policy asks for its labels, which are not known here",
}


@pytest.mark.parametrize(("line", "reason"), MISTAKES.items(), ids=[key[:60] for key in MISTAKES])
def test_bad_line_is_named_with_its_field_and_value(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "bad.yaml").write_text(POLICY.replace("name: web", "nmae: web"))
    events = tmp_path / "events.jsonl"
    events.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    done = podgate("replay", events, "--policy", tmp_path / "policy.yaml")
    assert done.code == 2
    assert done.err.startswith(f"error: {events}:3: "), done.err
    assert reason in done.err.splitlines()[0]
    if "not an RFC 3339 time" in reason:
        assert "write one such as 2026-12-01T04:00:00Z" in done.err
    assert len(done.lines) == 1, "the line before it was answered, the one after it was not"


def test_bad_byte_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "events.jsonl").write_bytes(GOOD.encode() + b'\n{"at": 5, "status": "\xff"}\n')
    done = podgate("replay", tmp_path / "events.jsonl", "--policy", tmp_path / "policy.yaml")
    assert (done.code, len(done.lines)) == (2, 1)
    assert f"{tmp_path}/events.jsonl:2: not JSON: " in done.error


@pytest.mark.parametrize("name", ["nowhere.jsonl", "."])
def test_unreadable_events_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = podgate("replay", tmp_path / name, "--policy", tmp_path / "policy.yaml")
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / name) in done.error


def test_invalid_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = podgate("replay", "-", "--policy", tmp_path / "policy.yaml", "--store", "http://localhost")
    assert done.code == 2
    assert done.error.startswith("--store: 'http://localhost': write memory, or the URL of a Redis")


def test_exempt_namespace_needs_no_labels(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = podgate("replay", "-", "--policy", tmp_path / "policy.yaml", stdin=pod_event(namespace="kube-system"))
    assert [line["decision"] for line in done.lines] == ["Exempt"]
