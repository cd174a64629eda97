"""The pipeline: stages, cards, changes by form, their impact before anything acts, and what is refused."""

import re
from html import unescape
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from tests.console.pipeline_documents import POLICY, SHOP, make_pipeline_ports
from tests.console.policies import PreparedPolicies
from tests.harness.console import ConsoleClient, open_console
from webhook.console.interface.console_policies import PlannedRollout
from webhook.core.rollout.plan import PlannedStep
from webhook.errors import UserError

EDIT = "/policy/edit"


async def change(client: ConsoleClient, do: str, draft: str = "", **fields: str) -> tuple[str, str]:
    """Send a change; return the name of the draft, and the text of the page that follows."""
    form = {"form_token": client.form_token, "draft": draft, "do": do, **fields}
    status, location = await client.post(EDIT, form)
    assert status == 303, location
    _, text = await client.get(urlsplit(location)._replace(fragment="").geturl())
    return parse_qs(urlsplit(location).query).get("draft", [""])[0], text


async def download(client: ConsoleClient, draft: str) -> str:
    status, text = await client.post(EDIT, {"form_token": client.form_token, "draft": draft, "do": "download"})
    assert status == 200
    return text


async def test_stages_show_the_pods_that_each_has_stopped() -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        found = await client.get_json(f"/api/v1{EDIT}")
        _, text = await client.get(EDIT)
    stages = {stage["name"]: (stage["stopped"], len(stage["pods"])) for stage in found["stages"]}
    assert stages == {"own": (0, 0), "breaker": (1, 1), "check": (0, 0), "queue": (0, 0), "charge": (4, 3)}
    assert "shop/&lt;b&gt;web&lt;/b&gt;" in text
    assert [card["name"] for card in found["cards"]] == ["payments", "checkout", "shop"]
    assert ["quota", "Enforce"] in found["cards"][0]["modes"]


async def test_a_service_moves_with_its_comments_and_the_impact_is_shown() -> None:
    policies = PreparedPolicies(report=SHOP)
    async with open_console(make_pipeline_ports(policies)) as client:
        draft, text = await change(client, "move services/0 2")
        assert "Moved to place 3." in text
        assert "Of the last 120 recorded Pods the draft denies 9, the policy in force 2." in text
        assert "shop/web-1: Admit" in text
        assert "Deny: QuotaExceeded: &lt;b&gt;full&lt;/b&gt;" in text
        moved = await download(client, draft)
    before, rest = POLICY.decode().split("# Money first.\n")
    block, after = rest.split("- name: checkout")
    assert moved == f"{before}- name: checkout{after}# Money first.\n{block}"
    assert policies.judged == [(POLICY, moved.encode())]


@pytest.mark.parametrize(
    ("do", "fields", "line"),
    [
        ("move services/0/quota/windows/1 0", {}, "-    - {window: 1h, hard: {pods: 400}}   # the hour"),
        ("remove services/0/quota/windows/0", {}, "-    # the burst"),
        ("mode services/2", {"check": "quota", "mode": "Audit"}, "+  modes: {quota: Audit}"),
        ("mode services/0", {"check": "breaker", "mode": "Warn"}, "+  modes: {quota: Enforce, breaker: Warn}"),
        ("window services/2", {"window": "1m", "pods": "10"}, "+  quota: {windows: [{window: 1m, hard: {pods: 10}}]}"),
        ("place services/1", {"to": "1"}, "+- name: checkout"),
        ("service", {"name": "new", "namespace": "new"}, "+- name: new"),
        ("remove services/1", {}, "-- name: checkout"),
        ("text", {"document": POLICY.decode().replace("400", "300")}, "+    - {window: 1h, hard: {pods: 300}}"),
    ],
)
async def test_each_change_is_a_small_difference_of_the_text(do: str, fields: dict[str, str], line: str) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        draft, text = await change(client, do, **fields)
        found = await client.get_json(f"/api/v1{EDIT}?draft={draft}")
        assert found["draft"]["errors"] == []
        assert "valid and proved" in text
        assert any(shown.startswith(line) for shown in found["changes"]), found["changes"]
        assert f'href="{EDIT}"' in text  # undo leads back


async def test_mistakes_are_shown_and_nothing_is_judged() -> None:
    policies = PreparedPolicies()
    async with open_console(make_pipeline_ports(policies)) as client:
        draft, text = await change(client, "window services/2", window="soon", pods="10")
        assert "1 mistake" in text
        assert "services[2].quota.windows[0].window: soon" in text
        assert policies.judged == []
        again, text = await change(client, "move services/2 0", draft)
        assert f"draft={draft}" in text  # undo
        assert again != draft


@pytest.mark.parametrize(
    ("do", "fields", "said"),
    [
        ("move services/9 0", {}, "no such place"),
        ("move ../../etc 0", {}, "no such place"),
        ("remove services/0/match/namespaces/0", {}, "no such place"),
        ("mode services/0", {"check": "name", "mode": "Audit"}, "no such mode"),
        ("window services/0", {"window": "1m", "pods": "-1"}, "no whole number"),
        ("format", {}, "use the buttons"),
    ],
)
async def test_what_is_no_change_of_the_page_is_refused(do: str, fields: dict[str, str], said: str) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        draft, text = await change(client, do, **fields)
    assert draft == ""
    assert f"Nothing was changed: {said}" in text or (said in text and "Nothing was changed" in text)


async def test_a_candidate_is_planned_and_nothing_is_written() -> None:
    step = PlannedStep("Canary", 1, "2026-12-01T04:00:00Z", "1% by Workload", 3, 200)
    policies = PreparedPolicies(planned=PlannedRollout((step,), ("it was taken back: x",)))
    async with open_console(make_pipeline_ports(policies)) as client:
        draft, _ = await change(client, "move services/0 1")
        _, text = await change(client, "candidate", draft)
        assert "podgate policy candidate policy.yaml" in text
        assert "1% by Workload" in text
        assert "it was taken back: x" in text
        policies.planned = UserError("no cluster", "give --kubeconfig")
        _, text = await change(client, "candidate", draft)
        assert "no cluster: give --kubeconfig" in text


async def test_an_impact_that_is_not_known_is_said() -> None:
    policies = PreparedPolicies(report=UserError("no decisions", "give --decisions"))
    async with open_console(make_pipeline_ports(policies)) as client:
        _, text = await change(client, "move services/0 1")
    assert "no decisions: give --decisions" in text


async def test_a_form_without_its_token_changes_nothing() -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        status, _ = await client.post(EDIT, {"do": "move services/0 1"})
        assert status == 403
        status, _ = await client.post(EDIT, {"do": "x", "form_token": client.form_token}, Origin="http://evil.example")
        assert status == 403
        status, _ = await client.get(f"{EDIT}?draft=unknown")
        assert status == 404
        client.session.cookie_jar.clear()
        status, _ = await client.post(EDIT, {"do": "move services/0 1"})
        assert status in {401, 403}


async def test_without_policies_the_pipeline_is_shown_and_has_no_form() -> None:
    async with open_console(make_pipeline_ports(None)) as client:
        _, text = await client.get(EDIT)
        assert "payments" in text
        assert not re.search(r'action="/policy/edit"', text)
        for path in (EDIT, "/api/v1/policy/lint", "/api/v1/policy/impact", "/api/v1/policy/candidate"):
            status, _ = await client.post(path, {"form_token": client.form_token, "do": "move services/0 1"})
            assert status in {404, 405}


async def test_programs_lint_judge_and_plan() -> None:
    policies = PreparedPolicies(report=SHOP)
    async with open_console(make_pipeline_ports(policies)) as client:

        async def ask(name: str, document: str) -> Any:
            sent = {"form_token": client.form_token, "document": document}
            status, text = await client.post(f"/api/v1/policy/{name}", sent)
            assert status == 200, text
            return msgspec.json.decode(text)

        assert await ask("lint", POLICY.decode()) == {"errors": [], "warnings": []}
        [error] = (await ask("lint", POLICY.decode().replace("1h", "soon")))["errors"]
        assert error["path"] == "services[0].quota.windows[1].window"
        found = await ask("impact", POLICY.decode().replace("400", "1"))
        assert found["impact"]["services"][0]["deniedAfter"] == 7
        assert await ask("candidate", POLICY.decode()) == {"errors": [], "warnings": [], "steps": [], "notes": []}
        status, _ = await client.post("/api/v1/policy/lint", {"document": "x"})
        assert status == 403


async def test_a_long_policy_can_be_pasted_and_a_longer_one_cannot() -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        long = POLICY.decode() + "# x\n" * 100_000
        _, text = await change(client, "text", document=long)
        assert "valid and proved" in text
        form = BytesIO(f"form_token={client.form_token}&do=text&document={'x' * (3 << 20)}".encode())
        sent = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        async with client.session.post(client.running.url + EDIT, data=form, headers=sent) as answer:
            assert answer.status == 413


async def test_the_text_comes_back_as_it_is() -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        _, text = await client.get(EDIT)
        shown = unescape(text.partition("<textarea")[2].partition(">\n")[2].partition("</textarea>")[0])
        draft, _ = await change(client, "text", document=shown.replace("\n", "\r\n"))
        assert await download(client, draft) == POLICY.decode()
    for hidden in (b"# a\tb\n", "# \u202e\n".encode(), b"# a\r\n"):
        async with open_console(make_pipeline_ports(PreparedPolicies(), POLICY + hidden)) as client:
            _, text = await client.get(EDIT)
            assert "characters that a page cannot show" in text
            assert "<textarea" not in text
            draft, _ = await change(client, "move services/0 1")
            assert (await download(client, draft)).encode().endswith(hidden)


async def test_many_services_are_paged() -> None:
    many = b"".join(b"- {name: s%d, match: {namespaces: [n%d]}}\n" % (number, number) for number in range(2000))
    document = POLICY.split(b"# Money")[0] + many
    async with open_console(make_pipeline_ports(PreparedPolicies(), document)) as client:
        _, text = await client.get(f"{EDIT}?page=2")
    assert "51. s50" in text
    assert "Page 2 of 40" in text
