"""`podgate test`: verdicts of cases, diffs, bad input, JUnit files, first tests and watching."""

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import BIN, podgate
from tests.cli.documented_commands import ROOT

EXAMPLES = ROOT / "docs" / "examples"
POLICY = EXAMPLES / "policy.yaml"
POD = """{kind: Pod, metadata: {name: api, labels: {app: payment-api}},
          spec: {schedulerName: NAME, containers: [{name: api, image: example.com/api}]}}"""
QUEUE = """
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota:
    windows: [{window: 1m, hard: {pods: 1}}]
    standing: {hard: {pods: 2}, surge: 0}
    whenExceeded: Queue
    queue: {}
  breaker: {outcomes: {source: PodStart}, errorRate: {interval: 30s, consecutive: 1, minimumOutcomes: 1}}
"""


def write(folder: Path, cases: str, policy: Path = POLICY, head: str = "namespace: payments") -> Path:
    path = folder / "case.yaml"
    path.write_text(f"apiVersion: podgate.io/v1alpha1\nkind: PolicyTest\npolicy: {policy}\n{head}\ncases:\n{cases}")
    return path


def case(expect: str, scheduler: str = '""') -> str:
    return f"- name: one\n  objects: [{POD.replace('NAME', scheduler)}]\n  expect: {expect}\n"


@pytest.mark.parametrize(
    ("expect", "scheduler", "differs"),
    [
        ("{decision: Admit}", "mine", ["- decision: Admit", "+ decision: Deny"]),
        ("{service: other}", '""', ["- service: other", "+ service: payment-api"]),
        ("{codes: []}", "mine", ["- codes: []", '+ codes: ["PlacementConflict"]']),
        ("{message: nodeSelector}", "mine", ["- message: nodeSelector", "+ message: PlacementConflict: service"]),
        ("{warnings: [PlacementConflict]}", '""', ['- warnings: ["PlacementConflict"]', "+ warnings: []"]),
        (
            '{patched: {"spec.nodeSelector[disk-type]": hdd}}',
            '""',
            ["- spec.nodeSelector[disk-type]: hdd", "+ spec.nodeSelector[disk-type]: ssd"],
        ),
        ("{patched: {spec.hostNetwork: true}}", '""', ["- spec.hostNetwork: true", "+ spec.hostNetwork: (absent)"]),
        ("{absent: [spec.schedulerName]}", '""', ["- spec.schedulerName: (absent)", "+ spec.schedulerName: podgate"]),
    ],
)
def test_each_expectation_is_compared(tmp_path: Path, expect: str, scheduler: str, differs: list[str]) -> None:
    done = podgate("test", write(tmp_path, case(expect, scheduler)))
    assert done.code == 1
    first, where, *diff = done.out.splitlines()
    assert first == f"FAIL  {tmp_path / 'case.yaml'}: one"
    assert where == "      Pod payments/api: (- expected, + actual)"
    assert all(line.strip().startswith(start) for line, start in zip(diff, differs, strict=False)), diff
    assert done.err == "1 case in 1 file: 1 failed\n"


def test_equal_expectations_pass(tmp_path: Path) -> None:
    expect = "{decision: Deny, service: payment-api, codes: [PlacementConflict], message: mine, warnings: []}"
    done = podgate("test", write(tmp_path, case(expect, "mine")))
    assert (done.code, done.out) == (0, f"ok    {tmp_path / 'case.yaml'}: one\n")


def test_a_sequence_keeps_its_counters_queue_and_breaker(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(QUEUE)
    pod = "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: example.com/web}]}}"
    steps = f"""
- name: queue
  sequence:
  - {{at: 0s, object: {pod}, uid: a, expect: {{decision: Admit}}}}
  - {{at: 1s, object: {pod}, uid: b, count: 2, expect: {{decision: Queue, breaker: CLOSED}}}}
  - {{at: 2s, status: web, expect: {{waiting: 2, released: [], used: [{{window: 1m, resource: pods, used: 1}}]}}}}
  - {{at: 70s, status: web, expect: {{waiting: 1, released: [b-1], expired: []}}}}
  - {{at: 71s, deleted: a}}
  - {{at: 150s, status: web, expect: {{waiting: 0, released: [b-2]}}}}
  - {{at: 151s, outcome: {{service: web, ok: false, latency: 100ms, uid: b-1}}}}
  - {{at: 190s, status: web, expect: {{breaker: OPEN}}}}
"""
    done = podgate("test", write(tmp_path, steps, Path("policy.yaml"), "namespace: shop"))
    assert done.code == 0, done.out
    wrong = steps.replace("waiting: 1", "waiting: 0").replace("[b-2]", "[b-9]").replace("OPEN", "CLOSED")
    done = podgate("test", write(tmp_path, wrong, Path("policy.yaml"), "namespace: shop"))
    assert done.code == 1
    assert [line.split(":")[0].strip() for line in done.out.splitlines() if "(- expected" in line] == [
        *("step 4 at 70s", "step 6 at 150s", "step 8 at 190s")
    ]


def test_all_mistakes_of_a_test_are_listed_with_line_and_remedy(tmp_path: Path) -> None:
    cases = """- {name: a, object: [x.yaml], expect: {decison: Admit}}
- {name: a, objects: [x.yaml], expect: {decision: Maybe, patched: {status.phase: x}, waiting: 3}}
- name: b
  sequence:
  - {at: 10s, object: x.yaml, expect: {}}
  - {at: 5s, status: a, count: 2, expect: {decision: Admit}}
  - {at: 20s}
- {name: c, objects: [x.yaml]}
- {name: d, sequence: [{at: 0s, deleted: a}]}
"""
    path = write(tmp_path, cases)
    done = podgate("test", path)
    assert done.code == 2
    places = [line.strip().removeprefix(f"{path}:").partition(": ") for line in done.out.splitlines()[2:]]
    assert [(place, text.partition(": ")[0]) for place, _, text in places] == [
        ("6:13", "cases[0].object"),
        ("6:40", "cases[0].expect.decison"),
        ("7:10", "cases[1].name"),
        ("7:51", "cases[1].expect.decision"),
        ("7:68", 'cases[1].expect.patched["status.phase"]'),
        ("7:86", "cases[1].expect.waiting"),
        ("10:39", "cases[2].sequence[0].expect"),
        ("11:10", "cases[2].sequence[1].at"),
        ("11:25", "cases[2].sequence[1].count"),
        ("11:44", "cases[2].sequence[1].expect.decision"),
        ("12:5", "cases[2].sequence[2]"),
        ("13:3", "cases[3].expect"),
        ("14:13", "cases[4].sequence"),
    ]
    assert all(text.count(": ") >= 3 for _, _, text in places), "path: value: reason: remedy"


@pytest.mark.parametrize(
    ("cases", "error"),
    [
        (case("{decision: Admit}").replace("kind: Pod", "kind: Secret"), "objects: Secret api: makes no Pods"),
        ("- {name: a, objects: [nope.yaml], expect: {decision: Admit}}", "nope.yaml: cannot be read"),
        ("- {name: a, sequence: [{at: 0s, status: nobody, expect: {waiting: 0}}]}", "step 1 at 0s: 'nobody': no such"),
    ],
)
def test_a_case_that_cannot_be_run_is_an_error_beside_the_others(tmp_path: Path, cases: str, error: str) -> None:
    done = podgate("test", write(tmp_path, f"{cases}\n{case('{decision: Admit}').replace('one', 'two')}"))
    assert done.code == 2
    assert error in done.out
    assert f"ok    {tmp_path / 'case.yaml'}: two" in done.out.splitlines()


def test_a_path_with_a_nul_is_an_error_of_its_case(tmp_path: Path) -> None:
    bad = '- {name: bad, objects: ["a\\0b.yaml"], expect: {decision: Admit}}'
    done = podgate("test", write(tmp_path, bad))
    assert done.code == 2
    assert "cannot be read: embedded null byte" in done.out + done.err


def test_a_key_that_is_no_test_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key.yaml").write_text("-----BEGIN PRIVATE KEY-----\nsecret: value\n")
    done = podgate("test", tmp_path / "key.yaml")
    assert done.code == 2
    assert "secret" not in done.out + done.err


def test_a_folder_without_tests_is_an_error(tmp_path: Path) -> None:
    assert podgate("test", tmp_path).error.startswith(f"{tmp_path}: no test in it")
    (tmp_path / "misspelled.yaml").write_text("apiVersion: podgate.io/v1alpha1\nkind: PolicyTst\ncases: []\n")
    assert "kind: PolicyTst" in podgate("test", tmp_path).out, "a file with cases is read as a test, not skipped"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--run", "("], "--run: '('"),
        (["--run", "nothing"], "--run: 'nothing': no case"),
        (["--policy", POLICY], "--policy and --namespaces are for --init"),
        (["--junit", "/nowhere/junit.xml"], "/nowhere/junit.xml: cannot be written"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, arguments: list[Any], error: str) -> None:
    done = podgate("test", write(tmp_path, case("{decision: Admit}")), *arguments)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"error: {error}")


def test_results_as_junit_and_json(tmp_path: Path) -> None:
    cases = case("{decision: Admit}") + case("{decision: Deny}").replace("one", "two & three")
    path = write(tmp_path, cases)
    done = podgate("test", path, "--junit", tmp_path / "junit.xml", "-o", "json")
    assert [(line["name"], line["result"]) for line in done.lines] == [("one", "ok"), ("two & three", "failed")]
    differences = done.lines[1]["failures"][0]["differences"]
    assert differences == [{"field": "decision", "expected": "Deny", "actual": "Admit"}]
    root = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314  our own file
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    passed, failed = root.iter("testcase")
    assert (passed.get("name"), len(passed), failed.get("name")) == ("one", 0, "two & three")
    assert "+ decision: Admit" in (failed.findtext("failure") or "")


@pytest.mark.parametrize("policy", [POLICY, EXAMPLES / "review" / "policy.yaml", EXAMPLES / "tutorial" / "policy.yaml"])
@pytest.mark.parametrize("manifest", ["review/payment-api.yaml", "tutorial/web.yaml", "review.json"])
def test_a_first_test_holds_for_its_policy(tmp_path: Path, manifest: str, policy: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    path = folder / "first.yaml"
    (tmp_path / "namespaces.yaml").write_text("payments: {tier: prod}\n")
    names = ("--namespaces", tmp_path / "namespaces.yaml")
    made = podgate("test", "--init", EXAMPLES / manifest, "--policy", policy, *names, path)
    assert made.code == 0, made.err
    done = podgate("test", folder)
    assert done.code == 0, done.out
    assert "containers." not in path.read_text(), "items of lists are in brackets"
    assert podgate("test", "--init", EXAMPLES / manifest, "--policy", policy, path).error.startswith(f"{path}: exists")


def test_watching_runs_again_when_a_policy_changes(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.read_text())
    path = write(tmp_path, case("{patched: {spec.schedulerName: podgate-scheduler}}"), policy)
    command = [BIN / "podgate", "test", "-w", "-o", "json", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        try:
            assert json.loads(running.stdout.readline())["result"] == "ok"
            policy.write_text(POLICY.read_text().replace("schedulerName: podgate-scheduler", "schedulerName: other"))
            assert json.loads(running.stdout.readline())["result"] == "failed"
        finally:
            running.kill()
