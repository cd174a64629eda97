"""The page of a Pod's story: its report is that of the command, its form, its rights, and text that stays text."""

import asyncio
from dataclasses import replace

import click
import msgspec
import pytest

from tests.console.pages import HOSTILE, check_text
from tests.console.token_serving import serve
from tests.harness.console import PreparedPort, make_ports, open_console, service
from tests.harness.console_reports import (
    DENIED,
    RUNNING,
    SUBJECT,
    WAITING,
    make_hostile_report,
    with_report,
)
from tests.harness.console_rows import denial
from tests.timeouts import HANG_SECONDS
from webhook.commands.explain_target import ExplainTarget
from webhook.commands.pages.pod_report_page import format_report
from webhook.console.interface.document_reader import Explanation
from webhook.core.diagnosis import Report
from webhook.ports.viewers import ResourceAccess

UID = SUBJECT.uid


@pytest.mark.parametrize("report", [DENIED, WAITING, RUNNING])
async def test_the_page_says_what_the_command_says(report: Report) -> None:
    ports, _ = with_report(report)
    async with open_console(ports) as client:
        found = await client.get_json("/api/v1/explain?pod=shop/web-5f-x2x9k&rules=yes")
    lines = [f"{report.token}: {report.summary}"]
    lines += [f"{'  ' * part.get('isDetail', False) + part['label']:12}{part['text']}" for part in found["parts"]]
    assert "\n".join(lines) == click.unstyle(format_report(report, with_rules=True))
    assert found["command"] == "podgate explain pod shop/web-5f-x2x9k --rules"
    assert found["report"] == msgspec.json.decode(msgspec.json.encode(report))


async def test_a_denial_shows_its_steps_its_moment_and_its_exit_code() -> None:
    ports, asked = with_report(DENIED)
    async with open_console(ports) as client:
        _, page = await client.get("/explain?pod=shop/web-5f-x2x9k")
        found = await client.get_json("/api/v1/explain?pod=shop/web-5f-x2x9k")
    assert str(asked[0]) == "pod shop/web-5f-x2x9k"
    assert [step["state"] for step in found["steps"]] == ["here", "ahead", "ahead", "ahead"]
    assert 'data-until="2100-01-01T00:00:12.000Z"' in page
    assert "<p>There is room <strong>" in page
    assert "which ends with 3 (denied)" in page
    assert "podgate explain pod shop/web-5f-x2x9k</code>" in page
    assert '<a href="/service/web">Service web</a>' in page
    assert "podgate quota grant web" in page


async def test_a_waiting_pod_shows_its_turn_and_its_queue() -> None:
    ports, _ = with_report(WAITING)
    async with open_console(ports) as client:
        _, page = await client.get("/explain?pod=shop/web-5f-x2x9k")
        found = await client.get_json("/api/v1/explain?pod=shop/web-5f-x2x9k")
    assert [step["state"] for step in found["steps"]] == ["done", "here", "ahead", "ahead"]
    assert (found["moment"], found["momentWords"], found["exitCode"]) == ("2100-01-01T00:00:00Z", "It may go", 0)
    assert "place 7 in web" in page
    assert 'href="/queue?service=web&amp;namespace=shop"' in page


async def test_what_is_asked_is_understood_as_by_the_command() -> None:
    ports, asked = with_report(RUNNING)
    async with open_console(ports) as client:
        for query in ("what=deploy/web&namespace=shop", "what=job+shop/report", "what=web-x7", f"what={UID}"):
            _, page = await client.get(f"/explain?{query}")
            assert '<h2 id="verdict">Running</h2>' in page
    assert list(map(str, asked)) == [
        "deployment.apps shop/web",
        "job.batch shop/report",
        "pod default/web-x7",
        f"uid {UID}",
    ]


async def test_without_a_question_there_is_the_form_and_a_bad_one_is_told() -> None:
    ports, asked = with_report(RUNNING)
    async with open_console(ports) as client:
        status, page = await client.get("/explain")
        assert status == 200
        assert "Name a Pod" in page
        assert 'role="alert"' not in page
        _, page = await client.get("/explain?what=widget/web")
        assert "&#39;widget&#39; is no kind of workload" in page
        assert "What helps: write pod NAME" in page
        assert "/explain?pod=" not in page
    assert asked == []


async def test_of_what_nothing_is_known_the_reasons_are_told() -> None:
    ports, _ = with_report(None, nodes="HTTP 403", records="no port")
    async with open_console(ports) as client:
        _, page = await client.get("/explain?pod=shop/gone")
    assert "Nothing is known of pod shop/gone" in page
    assert "nodes: HTTP 403; unknown: whose terms leave no node" in page
    assert "which ends with 4 (nothing is known)" in page


async def test_without_a_cluster_the_decision_port_explains() -> None:
    ports = make_ports(
        service("web"), denied=[denial("r1", owner={"kind": "ReplicaSet", "name": "web-5f", "uid": "u7"})]
    )
    port = ports.decisions
    assert isinstance(port, PreparedPort)
    port.answers["/api/v1/explain"] = {"report": msgspec.to_builtins(DENIED), "records": []}
    async with open_console(ports) as client:
        for query in (
            "pod=shop/web-x7",
            f"what={UID}",
            "what=rs/web-5f&namespace=shop",
            "what=deploy/web&namespace=shop",
        ):
            _, page = await client.get(f"/explain?{query}")
            assert '<h2 id="verdict">Denied</h2>' in page, query
        _, page = await client.get("/explain?what=deploy/other&namespace=shop")
        assert "this console explains by decision records alone" in page
    assert [path.partition("explain?")[2] for path in port.paths if "explain" in path] == [
        "namespace=shop&name=web-x7",
        f"uid={UID}",
        "namespace=shop&owner=web-5f",
        "namespace=shop&owner=u7",
    ]


async def test_without_any_source_the_page_says_so() -> None:
    ports = replace(make_ports(service("web")), decisions=None, missing={"decisions": "no server shows its decisions"})
    async with open_console(ports) as client:
        _, page = await client.get("/explain?pod=shop/web-x7")
    assert "nothing can be explained: the decision port was not found" in page
    assert "What helps: no server shows its decisions" in page


async def test_a_port_that_is_no_decision_port_is_told() -> None:
    ports = make_ports(service("web"))
    assert isinstance(ports.decisions, PreparedPort)
    ports.decisions.answers |= {"/api/v1/explain": b"[]", "/api/v1/decisions": b"[]"}
    async with open_console(ports) as client:
        for query in ("pod=shop/web-x7", "what=deploy/web"):
            _, page = await client.get(f"/explain?{query}")
            assert "answers, but not as Podgate&#39;s decision port" in page
            assert "What helps: give --decisions the URL" in page


async def test_only_two_are_explained_at_a_time() -> None:
    at_once, most, busy, gone = 0, 0, asyncio.Event(), asyncio.Event()

    async def explain(_: ExplainTarget) -> Explanation:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        if most > 1:
            busy.set()
        await asyncio.wait_for(gone.wait(), HANG_SECONDS)
        at_once -= 1
        return Explanation(RUNNING)

    async with open_console(replace(make_ports(service("web")), explain=explain)) as client:
        asked = [asyncio.create_task(client.get(f"/explain?pod=shop/web-{number}")) for number in range(6)]
        await asyncio.wait_for(busy.wait(), HANG_SECONDS)
        gone.set()
        assert {status for status, _ in await asyncio.gather(*asked)} == {200}
    assert most == 2


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_from_outside_stays_text(text: str) -> None:
    ports, _ = with_report(make_hostile_report(text), **{text: text})
    async with open_console(ports) as client:
        for query in ("pod=shop/a&rules=yes", "what=%3Cscript%3E&namespace=%22%3E%3Cimg", "what=%1B%5B2J"):
            check_text((await client.get(f"/explain?{query}"))[1])


async def test_a_viewer_of_one_namespace_sees_its_stories_only() -> None:
    ports, asked = with_report(DENIED)
    async with serve(ports) as served:
        served.reviews.rights.add(("bob", ResourceAccess("list", "pods", "shop")))
        for path in ("/explain", "/api/v1/explain"):
            status, page = await served.get(f"{path}?pod=lab/secret-pod", "token-of-bob")
            assert (status, "used 50" in page, "you may not list the Pods of lab" in page) == (200, False, True)
            assert asked == []
            _, page = await served.get(f"{path}?what={UID}", "token-of-ann")
            assert "used 50" not in page
            assert "web-5f" not in page
            _, page = await served.get(f"{path}?pod=shop/web-5f-x2x9k", "token-of-bob")
            assert "used 50" in page
            assert "/service/web" not in page
            asked.clear()
