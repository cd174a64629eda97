"""`podgate check`: output, exit codes and --wait, over facts that are given."""

import json
import time
from collections.abc import Callable
from dataclasses import fields, replace

import click
import pytest

from tests.cli.command_runner import podgate
from tests.core.checks.checks import FACTS
from webhook.cli import check
from webhook.commands.pages.check_page import format_check
from webhook.core.checks import SECTIONS, ClusterFacts, judge_facts
from webhook.core.checks.objects import ClusterMetadata, LeaseHolderObject, LeaseHolding
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.operations.server_discovery import ServerLocation

UNREAD = dict.fromkeys(("mutating", "validating", "policy_map", "probes"), "you may not list them")
LEASE = LeaseHolderObject(
    ClusterMetadata(name="podgate-leader"), spec=LeaseHolding("a", 15, format_rfc3339(FACTS.at_us))
)
NONE = replace(FACTS, unread=UNREAD, leases=[LEASE])
WARNING = replace(NONE, version="0.2.0")
ERROR = replace(NONE, leases=[])
SKIPPED = sum(bool(result.not_checked) for _, results in judge_facts(NONE) for result in results)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return a function that sets the facts of each reading, and returns the list of readings."""

    def set_facts(*facts: ClusterFacts) -> list[int]:
        readings: list[int] = []

        async def gather(_: ServerLocation, __: str | None) -> ClusterFacts:
            readings.append(len(readings))
            return facts[min(len(readings), len(facts)) - 1]

        monkeypatch.setattr(check, "gather_facts", gather)
        return readings

    return set_facts


def test_nothing_judged_is_not_no_error(given: Callable[..., list[int]]) -> None:
    unread = dict.fromkeys((field.name for field in fields(ClusterFacts)), "you may not read it")
    blind = ClusterFacts(FACTS.at_us, "0.1.0", unread, "v1.36.3", FACTS.at_us)
    for arguments in ((), ("--strict",)):
        given(blind)
        done = podgate("check", *arguments)
        assert done.code == 3
        assert done.out.splitlines()[-1].endswith(": nothing could be checked")


def test_what_does_not_apply_is_told_with_the_reason(given: Callable[..., list[int]]) -> None:
    given(NONE)
    done = podgate("check")
    (line,) = [line for line in done.out.splitlines() if line.startswith("-- not applicable, counters are in memory: ")]
    assert "; Redis evicts no keys; " in line
    (found,) = [
        check
        for section in json.loads(podgate("check", "-o", "json").out)["sections"]
        for check in section["checks"]
        if check["code"] == "redis-evicts"
    ]
    assert (found["status"], found["notApplicable"]) == ("notApplicable", "counters are in memory")


@pytest.mark.parametrize(
    ("facts", "arguments", "code", "summary"),
    [
        (NONE, (), 0, ""),
        (NONE, ("--strict",), 0, ""),
        (WARNING, (), 0, "1 warning, "),
        (WARNING, ("--strict",), 1, "1 warning, "),
        (ERROR, (), 1, "1 error, "),
    ],
)
def test_exit_code_is_that_of_the_findings(
    given: Callable[..., list[int]], facts: ClusterFacts, arguments: tuple[str, ...], code: int, summary: str
) -> None:
    given(facts)
    done = podgate("check", *arguments)
    assert (done.code, done.out.splitlines()[-1]) == (code, f"{summary}{SKIPPED} checks not possible")


def test_finding_has_object_field_value_remedy_and_link(given: Callable[..., list[int]]) -> None:
    given(ERROR)
    done = podgate("check")
    assert done.err == "server: server\n"
    lines = done.out.splitlines()
    at = lines.index(
        "xx leader-missing: Lease podgate-system/podgate-leader: metadata.name: absent: nothing is refunded or repaired"
    )
    assert lines[at + 1].startswith("    remedy: start the leader")
    assert lines[at + 2] == "    see docs/runbook.md#leader-missing"
    assert "ok every scheduler works" in lines
    assert any(line.startswith("?? not checked: ") and "webhooks-stale" in line for line in lines)
    assert "    you may not list them" in lines


def test_terminal_with_unicode_has_the_marks_of_linkerd() -> None:
    lines = list(format_check(tuple(judge_facts(WARNING)), {}, is_unicode=True))
    marks = {line.split(" ")[0] for line in map(click.unstyle, lines) if line[:1] in {"√", "‼", "?"}}
    assert marks == {"√", "‼", "?"}


def test_json_has_every_check_with_its_status(given: Callable[..., list[int]]) -> None:
    given(replace(ERROR, version="0.2.0"))
    document = json.loads(podgate("check", "-o", "json").out)
    assert (document["errors"], document["warnings"]) == (1, 1)
    assert (document["server"], document["version"]) == ("server", "0.2.0")
    by_code = {check["code"]: check for section in document["sections"] for check in section["checks"]}
    assert by_code.keys() == {check.code for section in SECTIONS for check in section.checks}
    assert (by_code["leader-missing"]["status"], by_code["server-version"]["status"]) == ("error", "warning")
    assert (by_code["scheduler-missing"]["status"], by_code["webhooks-stale"]["status"]) == ("ok", "notChecked")
    [finding] = by_code["leader-missing"]["findings"]
    assert finding.keys() == {"object", "field", "value", "remedy", "command", "link"}
    assert by_code["webhooks-stale"]["notChecked"] == "you may not list them"


def test_wait_repeats_until_there_is_no_error(given: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now[-1] + seconds))
    monkeypatch.setattr(time, "monotonic", lambda: now[-1])
    readings = given(ERROR, ERROR, WARNING)
    assert podgate("check", "--wait", "1m").code == 0
    assert len(readings) == 3
    readings = given(ERROR)
    assert podgate("check", "--wait", "10s").code == 1
    assert len(readings) == 5


def test_kubeconfig_that_is_absent_is_exit_2() -> None:
    done = podgate("check", "--kubeconfig", "/nowhere/config")
    assert done.code == 2
    assert done.error.startswith("/nowhere/config: cannot read the kubeconfig")
