"""Reports have one form everywhere: text by default also in a pipe, and the same document as JSON and as YAML."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.command_runner import podgate, policy_text

RULE = "- {name: web, match: {namespaces: [shop]}}\n"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}, spec: {containers: [{name: c, image: i}]}}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(policy_text(RULE))
    Path("other.yaml").write_text(policy_text(RULE.replace("web", "api")))
    Path("bad.yaml").write_text(policy_text(RULE.replace("match", "mach")))
    assert podgate("certs", "issue", "--out", "pki", "--server", "a.example").code == 0
    Path("pod.yaml").write_text(POD)
    done = podgate("test", "--init", "pod.yaml", "--policy", "policy.yaml", "test.yaml")
    assert done.code == 0, done.err


COMMANDS = [
    ("policy", "lint", "policy.yaml"),
    ("policy", "lint", "bad.yaml"),
    ("policy", "diff", "policy.yaml", "other.yaml"),
    ("policy", "diff", "policy.yaml", "policy.yaml"),
    ("certs", "inspect", "pki/server.crt", "pki/ca.crt"),
    ("certs", "rotate", "--out", "pki", "--dry-run"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_yaml_and_json_are_the_same_document(command: tuple[str, ...]) -> None:
    as_json, as_yaml = podgate(*command, "-o", "json"), podgate(*command, "-o", "yaml")
    assert as_json.code == as_yaml.code
    assert yaml.safe_load(as_yaml.out) == yaml.safe_load(json.dumps(json.loads(as_json.out)))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_default_is_text_also_in_a_pipe(command: tuple[str, ...]) -> None:
    assert podgate(*command).out == podgate(*command, "-o", "text").out


def test_results_of_tests_are_a_line_of_json_or_a_yaml_document_each() -> None:
    [result] = podgate("test", "test.yaml", "-o", "json").lines
    [document] = yaml.safe_load_all(podgate("test", "test.yaml", "-o", "yaml").out)
    assert {**document, "seconds": 0} == {**result, "seconds": 0}
    assert document["result"] == "ok"


def test_former_name_of_the_text_of_check_is_accepted() -> None:
    done = podgate("check", "-o", "table", "--kubeconfig", "none")
    assert "Invalid value" not in done.err
    assert "table" not in podgate("check", "--help").out
