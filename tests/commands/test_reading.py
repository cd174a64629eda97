"""Input of a command: bounded, and rejected with a duplicate key."""

from pathlib import Path

import pytest

import certs.files
from tests.cli.command_runner import podgate, policy_text
from webhook.support.input_files import INPUT_BYTES_MAX

ENDLESS = "/dev/zero"
POLICY = policy_text("- {name: web, match: {namespaces: [shop]}}\n")
TIMES = ["--for", "10m", "--reason", "r"]
COMMANDS = [
    ["review", ENDLESS, "--policy", "policy.yaml"],
    ["review", "pod.yaml", "--policy", ENDLESS],
    ["review", "pod.yaml", "--policy", "policy.yaml", "--namespaces", ENDLESS],
    ["replay", ENDLESS, "--policy", "policy.yaml"],
    ["replay", "events.jsonl", "--policy", ENDLESS],
    ["policy", "lint", ENDLESS],
    ["policy", "render", "--policy", ENDLESS],
    ["policy", "webhooks", "--policy", ENDLESS, "--without-ca"],
    ["policy", "webhooks", "--policy", "policy.yaml", "--ca", ENDLESS],
    ["policy", "webhooks", "--policy", "policy.yaml", "--without-ca", "--path-file", ENDLESS],
    ["override", "web", "--mode", "quota=Audit", *TIMES, "--overrides", "o.yaml", "--policy", ENDLESS],
    ["token", "inspect", ENDLESS],
    ["token", "jwks", ENDLESS],
    ["certs", "inspect", ENDLESS],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    Path("pod.yaml").write_text("{kind: Pod, metadata: {name: p}, spec: {}}")
    Path("events.jsonl").write_text("")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:50])
def test_endless_file_is_refused_at_the_common_limit(command: list[str]) -> None:
    done = podgate(*command)
    assert (done.code, done.out) == (2, "")
    assert ENDLESS in done.error
    assert "more than 64 MiB" in done.error


@pytest.mark.parametrize("command", ["review", "replay"])
def test_endless_standard_input_is_refused(command: str) -> None:
    done = podgate(command, "-", "--policy", "policy.yaml", stdin=bytes(INPUT_BYTES_MAX + 1))
    assert (done.code, done.out) == (2, "")
    assert "more than 64 MiB" in done.error


def test_all_readers_have_one_size_limit() -> None:
    assert certs.files.FILE_BYTES_MAX == INPUT_BYTES_MAX


TWICE = {
    "kind: Pod\nmetadata: {name: p}\nspec:\n  nodeSelector: {}\n  nodeSelector: {a: b}\n": (
        'pod: line 5, column 3: the key "nodeSelector" is duplicated'
    ),
    "{kind: Pod, metadata: {name: p}, spec: {}}\n---\nkind: Pod\nmetadata:\n  labels: {a: b, 'a': c}\n": (
        'pod: document 2: line 5, column 18: the key "a" is duplicated'
    ),
    '{"kind": "Pod", "metadata": {"name": "p", "labels": {"z": "1", "a": "1", "a": "2"}}, "spec": {}}': (
        'pod: the key "a" is duplicated in one object, which begins with "z", "a"'
    ),
}


@pytest.mark.parametrize("text", TWICE)
def test_duplicate_key_is_refused(text: str) -> None:
    Path("pod").write_text(text)
    done = podgate("review", "pod", "--policy", "policy.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith(TWICE[text])


def test_merged_keys_are_no_duplicates() -> None:
    Path("pod").write_text(
        "x: &x {image: a, name: b}\ny: &y {<<: *x, image: c}\n"
        "kind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {containers: [{<<: *y, image: d}],"
        " initContainers: [{<<: *x, name: d}, {<<: *y, name: e}]}\n"
    )
    done = podgate("review", "pod", "--policy", "policy.yaml", "-o", "json")
    assert done.code == 0, done.err
    spec = done.lines[0]["pod"]["spec"]
    found = [container["image"] for container in (*spec["containers"], *spec["initContainers"])]
    assert found == ["d", "a", "c"]
