"""`podgate policy impact`: inputs, exit codes, and mistakes."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.command_runner import podgate, policy_text
from tests.decisions.records import NOW_MS, encode_document, encode_record

WEB = "- {name: web, match: {namespaces: [shop]}, quota: {windows: [{window: 1m, hard: {pods: 3}}]}}\n"
ROOT = Path(__file__).parents[2]
POD = {"metadata": {"name": "web-1"}, "spec": {"containers": [{"name": "c"}]}}


@pytest.fixture
def policies(tmp_path: Path) -> tuple[Path, Path]:
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(policy_text(WEB))
    after.write_text(policy_text(WEB.replace("pods: 3", "pods: 1")))
    return before, after


def test_impact_by_a_record(policies: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = policies
    record = tmp_path / "events.jsonl"
    asks = [json.dumps({"at": number, "pod": POD, "namespace": "shop"}) for number in range(2)]
    record.write_text("\n".join([*asks, '{"at": 2, "status": "web"}', '{"at": 3, "policy": "other.yaml"}']))
    inputs = ("policy", "impact", after, "--before", before, "--record", record)
    done = podgate(*inputs)
    assert done.code == 0
    assert done.out.splitlines()[1:4] == [
        "SERVICE  REQUESTS  DENIED BEFORE  DENIED AFTER  DENIED  FINDINGS",
        "web      2         0              1             1       1",
        "web: shop/web-1: denied, findings",
    ]
    assert podgate(*inputs, "--fail-on", "denials").code == 3
    record.write_text(f"{asks[1]}\n{asks[0]}\n")
    assert podgate(*inputs).error.startswith(f"{record}:2: at: 0: time does not go back, the line before was at 1")


def test_impact_by_a_file_of_decisions(policies: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = policies
    decisions = tmp_path / "decisions.json"
    records = (
        encode_record(NOW_MS, operation="UPDATE", sub_resource="resize"),
        encode_record(NOW_MS + 1, workload="deployment.apps/web"),
        encode_record(NOW_MS + 2),
    )
    decisions.write_bytes(b"[" + b",".join(map(encode_document, records)) + b"]")
    done = podgate("policy", "impact", after, "--before", before, "--decisions", decisions, "-o", "json")
    assert done.document["requests"] == 0
    assert done.document["leftOut"] == {
        "updates and resizes": 1,
        "reviews of workloads": 1,
        "Pods too large to be recorded": 1,
    }
    assert (done.document["since"], done.document["until"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z")


def test_rules_that_read_more_than_records_keep_are_named(policies: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = policies
    rule = "{name: pinned, require: 'pod.containers.all(c, c.image != \"\")', mode: Enforce}"
    after.write_text(policy_text(WEB.replace("quota: ", f"rules: [{rule}], quota: ")))
    record = tmp_path / "events.jsonl"
    record.write_text(json.dumps({"at": 0, "pod": POD, "namespace": "shop"}))
    done = podgate("policy", "impact", after, "--before", before, "--record", record)
    assert done.code == 0
    assert "unchanged: web" in done.out
    assert "so they judge no Pod of a record: web/pinned (containers.image)" in done.err


def test_mistakes_end_with_2(policies: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = policies
    (tmp_path / "bad.yaml").write_text(policy_text("- {name: web, mach: {namespaces: [shop]}}\n"))
    done = podgate("policy", "impact", tmp_path / "bad.yaml", "--before", before, "--record", before)
    assert done.code == 2
    assert "services[0].mach: {...}: unknown field: did you mean match?" in done.err
    both = podgate("policy", "impact", after, "--before", before, "--record", before, "--decisions", before)
    assert both.error.startswith("--record and --decisions: both are given")
    gone = podgate("policy", "impact", after, "--before", before, "--record", tmp_path / "none")
    assert gone.error.startswith(f"{tmp_path / 'none'}: No such file or directory")
    since = podgate("policy", "impact", after, "--before", before, "--record", before, "--since", "1h")
    assert since.error.startswith("--since: with a file of requests: ")
    live = podgate("policy", "impact", after, "--record", before, "--kubeconfig", tmp_path / "none")
    assert live.code == 2


def test_the_page_shows_what_its_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs/replay.md").read_text().partition("## The impact of a policy")[2]
    command, _, shown = page.split("```")[1:4]
    printed = podgate(*shlex.split(command.removeprefix("sh\n"))[1:]).out.splitlines()
    for line, expected in zip(printed, shown.strip().splitlines(), strict=True):
        assert line.startswith(expected.removesuffix("..."))
