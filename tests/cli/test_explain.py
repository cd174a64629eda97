"""`podgate explain` by a file of records, without a cluster: exit codes, forms, and bad input."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from click import unstyle

from tests.cli.command_runner import Done, podgate
from tests.core.recording import POLICY_TEXT, RecordedShop
from webhook.commands.pages.pod_report_page import format_report
from webhook.core.diagnosis import PodFacts, Surroundings, diagnose
from webhook.core.diagnosis.objects import ReportedPod, ReportedPodStatus
from webhook.core.kubernetes.pod import PodMetadata

UID = "00000000-0000-4000-8000-0000000000a1"
DENIAL = "QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1; could pass from "


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedShop:
    """Write the records of an admitted and a denied Pod, and their policy."""
    monkeypatch.chdir(tmp_path)
    found = RecordedShop()

    async def create_both() -> None:
        await found.create(UID, nodeSelector={"disk": "hdd"})
        await found.create("u2")

    asyncio.run(create_both())
    Path("records.jsonl").write_bytes(b"\n".join(found.recorder.lines))
    Path("policy.yaml").write_text(POLICY_TEXT)
    return found


def explain(*arguments: str) -> Done:
    return podgate("explain", *arguments, "-n", "shop", "--records", "records.jsonl")


def test_denied_pod_is_exit_3_with_the_text_of_its_denial() -> None:
    done = explain("pod", "web-u2", "--policy", "policy.yaml")
    assert done.code == 3, done.err
    first, *rest = done.out.splitlines()
    assert first.startswith(f"Denied: {DENIAL}")
    page = "\n".join(rest)
    assert "Pod shop/web-u2, of ReplicaSet/web-7d4b9c" in page
    assert "Deny (429), service web (services[0]: namespaces shop; podSelector app=web)" in page
    assert "  quota     pods in 1m: hard 1, used 1, asked 1; could pass from " in page


def test_admitted_pod_has_what_each_rule_wrote() -> None:
    done = explain("pod", f"shop/web-{UID}", "--policy", "policy.yaml")
    assert done.code == 0
    first = done.out.splitlines()[0]
    assert first.startswith("Admitted: 20")
    assert first.endswith("whether it exists cannot be told: --records explains by the records of the file alone")
    assert "rewritten spec.nodeSelector[disk]=ssd (placement.nodeSelector[disk]: overrides hdd" in done.out
    assert "  rule " not in done.out
    assert (
        "  rule      validate charge   charged"
        in explain("pod", f"web-{UID}", "--policy", "policy.yaml", "--rules").out
    )


def test_workload_is_known_by_the_newest_of_its_pods() -> None:
    done = explain("deploy/web", "-o", "json")
    assert done.code == 3
    document = json.loads(done.out)
    assert (document["token"], document["subject"]["kind"]) == ("Denied", "Deployment")
    assert document["quota"] == [
        {
            "of": "service",
            "name": "web",
            "window": "1m",
            "resource": "pods",
            "hard": 1,
            "used": 1,
            "asked": 1,
            "over": True,
            "freeAt": document["quota"][0]["freeAt"],
        }
    ]
    assert document["quota"][0]["freeAt"] in document["summary"]


def test_an_object_of_a_custom_kind_without_records_is_exit_4() -> None:
    done = explain("jobset/web")
    assert done.code == 4
    assert "nothing is known of jobset.jobset.x-k8s.io shop/web" in done.err


def test_uid_is_enough() -> None:
    assert yaml.safe_load(explain(UID, "-o", "yaml").out)["token"] == "Admitted"


def test_policy_that_nobody_keeps_is_named() -> None:
    assert "not read    policy " in explain("pod", "web-u2").out


def test_earlier_moment_knows_no_later_decision(shop: RecordedShop) -> None:
    _, _, first, _ = shop.recorder.records
    at = first.at.isoformat().replace("+00:00", "Z")
    assert explain("deploy/web").code == 3
    assert explain("deploy/web", "--at", at).code == 0
    assert explain("deploy/web", "--at", "2020-01-01T00:00:00Z").code == 4


@pytest.mark.parametrize("form", ["lines", "list", "answer"])
def test_records_are_read_as_they_are_printed(form: str, shop: RecordedShop) -> None:
    listed = b"[" + b",".join(shop.recorder.lines) + b"]"
    forms = {"lines": b"\n".join(shop.recorder.lines), "list": listed, "answer": b'{"decisions":' + listed + b"}"}
    Path("records.jsonl").write_bytes(forms[form])
    assert explain("pod", "web-u2").code == 3


def test_unknown_pod_is_exit_4() -> None:
    done = explain("pod", "other")
    assert done.code == 4
    assert done.err.startswith(
        "error: nothing is known of pod shop/other: the object cannot be read, and no record of it"
    )
    assert "  not read: cluster: --records explains by the records of the file alone" in done.err


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "kind": (("service/web",), "'service/web': 'service' is no kind of workload"),
    "name": (("pod", "Web"), "'pod Web': 'Web' is no name of an object"),
    "many": (("pod", "a", "b"), "'pod a b': 3 arguments"),
    "time": (("pod", "a", "--at", "noon"), "--at: 'noon': not an RFC 3339 time"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_exit_2_with_a_remedy(name: str) -> None:
    arguments, expected = BAD[name]
    done = explain(*arguments)
    assert done.code == 2
    assert done.error.startswith(expected)


def test_line_that_is_no_record_is_named() -> None:
    Path("records.jsonl").write_text('{"id": 1}\n')
    assert explain("pod", "a").error.startswith("records.jsonl:1: no decision record: ")


def test_control_characters_of_a_tenant_do_not_reach_the_terminal() -> None:
    status = ReportedPodStatus("Failed", "Evicted", "\x1b[2Jcleared")
    pod = ReportedPod(PodMetadata("web", namespace="shop"), status=status)
    report = diagnose(PodFacts("shop", "web", pod=pod), Surroundings(0))
    assert report is not None
    assert unstyle(format_report(report)).startswith("Failed: Evicted: \\x1b[2Jcleared\n")
