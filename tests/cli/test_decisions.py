"""`podgate decisions` shows what a server decided, as a table or as documents."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import podgate
from tests.decisions.records import NOW_MS, encode_document, encode_record
from tests.harness.canned_http import serve_answers
from webhook.cli.decisions import _format_line
from webhook.core.admission.decision import Verdict
from webhook.core.reporting.decision_record import RecordedController, RecordedStatus
from webhook.operations import decision_port

OWNER = RecordedController("ReplicaSet", "web-7d9c", "r1")
DENIED = encode_record(
    NOW_MS + 1,
    service="web",
    uid="u1",
    owner=OWNER,
    policy="9640bfdb9640bfdb",
    decision=Verdict.DENY,
    status=RecordedStatus(429, "TooManyRequests", "QuotaExceeded: pods in 1m: hard 1, used 1, asked 1"),
)
RECORDS = (DENIED, encode_record(NOW_MS, name="web-", decision=Verdict.EXEMPT, exemption="namespaces"))
ANSWER = b'{"decisions":[' + b",".join(map(encode_document, RECORDS)) + b'],"next":null,"error":"only decisions of x"}'


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    path = "/api/v1/decisions?"
    with serve_answers(
        {f"{path}limit=100": (200, ANSWER), f"{path}service=web&since=10m&denied=true&limit=100": (200, ANSWER)}
    ) as url:
        yield url


def test_table_has_the_newest_last(server: str) -> None:
    done = podgate("decisions", "--server", server, "-o", "table")
    heading, exempt, denied = done.out.splitlines()
    assert heading.split() == ["TIME", "DECISION", "HALF", "SERVICE", "POD", "MESSAGE"]
    assert exempt.split() == [
        *("2027-01-15T08:00:00.000Z", "Exempt", "validate", "-", "shop/web-*"),
        *("exempt", "by", "namespaces"),
    ]
    assert denied.startswith("2027-01-15T08:00:00.001Z  Deny       validate  web ")
    assert denied.endswith("  QuotaExceeded: pods in 1m: hard 1, used 1, asked 1")
    assert done.err == "warning: only decisions of x\n"
    assert done.code == 0


def test_wide_table_has_user_owner_uid_and_policy(server: str) -> None:
    denied = podgate("decisions", "--server", server, "-o", "wide").out.splitlines()[2]
    assert denied.split()[5:9] == ["alice", "ReplicaSet/web-7d9c", "u1", "9640bfdb9640bfdb"]


DRY = encode_record(NOW_MS + 2, dry_run=True, name="web-dry")
DRY_DENIED = encode_record(
    NOW_MS + 3, dry_run=True, decision=Verdict.DENY, status=RecordedStatus(403, "Forbidden", "NodeNameSet: no")
)


@pytest.mark.parametrize("form", ["table", "wide"])
def test_dry_run_is_marked_in_tables(form: str) -> None:
    body = (
        b'{"decisions":[' + b",".join(map(encode_document, (DRY_DENIED, DRY, DENIED))) + b'],"next":null,"error":null}'
    )
    with serve_answers({"/api/v1/decisions?limit=100": (200, body)}) as url:
        _, counted, dry, dry_denied = podgate("decisions", "--server", url, "-o", form).out.splitlines()
    assert "dry run" not in counted
    assert dry.endswith("  dry run")
    assert dry_denied.endswith("  dry run: NodeNameSet: no")


@pytest.mark.parametrize(("form", "marked"), [("json", '"dryRun": true'), ("yaml", "dryRun: true")])
def test_dry_run_is_marked_in_documents_and_while_it_follows(form: str, marked: str) -> None:
    body = b'{"decisions":[' + b",".join(map(encode_document, (DRY, DENIED))) + b'],"next":null,"error":null}'
    with serve_answers({"/api/v1/decisions?limit=100": (200, body)}) as url:
        assert podgate("decisions", "--server", url, "-o", form).out.count(marked) == 1
    assert _format_line(json.loads(encode_document(DRY)), form).count(marked) == 1
    assert _format_line(json.loads(encode_document(DRY)), "table").endswith("  dry run")


def test_json_has_the_records(server: str) -> None:
    found = json.loads(podgate("decisions", "--server", server, "-o", "json").out)
    assert found == [json.loads(encode_document(record)) for record in RECORDS[::-1]]


def test_options_are_conditions(server: str) -> None:
    done = podgate("decisions", "web", "--denied", "--since", "10m", "--server", server, "-o", "json")
    assert done.code == 0


def test_wrong_duration_is_named() -> None:
    done = podgate("decisions", "--since", "yesterday")
    assert done.code == 2
    assert done.err.startswith("error: --since 'yesterday': ")


def test_without_a_server_all_that_was_tried_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decision_port, "DEFAULT_URL", "http://127.0.0.1:1")
    done = podgate("decisions", "--kubeconfig", tmp_path / "none")
    assert done.code == 2
    assert f"{tmp_path / 'none'}: there is no kubeconfig" in done.err
    assert "no server answers at http://127.0.0.1:1/" in done.err
