"""The nodes page: states, pages, one node, no extender, and text that stays text."""

from typing import Any

import pytest

from tests.console.pages import HOSTILE, check_text
from tests.console.token_serving import serve
from tests.harness.console import make_ports, open_console, service
from tests.harness.console_rows import NODES, node, with_nodes
from webhook.errors import UserError


async def test_each_node_shows_its_state_and_for_whom() -> None:
    ports, _ = with_nodes(lambda _: {"nodes": NODES, "count": 5, "unread": ["node x: no cpu"]})
    async with open_console(ports) as client:
        _, page = await client.get("/nodes")
        found = await client.get_json("/api/v1/nodes")
    states = {
        row: page.partition(f'data-live="{row}/state"')[2].partition(">")[2].partition("<")[0]
        for row in ("hot", "silent", "blank", "asked", "cool")
    }
    assert states == {
        "hot": "Hot",
        "silent": "Silent",
        "blank": "Load unknown",
        "asked": "Not measured",
        "cool": "Cool",
    }
    assert "cpu is hot, for a, b, c and 1 more" in page
    assert "its load is unknown, for a" in page
    assert "2 Pods: 0.5 cpu, 1 GiB" in page
    assert "3.5, 4" in page
    assert "5m old" in page
    assert "Cannot be read: node x: no cpu" in page
    assert "as podgate-extender-0 sees them" in page
    assert [row["name"] for row in found["nodes"]] == ["hot", "silent", "blank", "asked", "cool"]


async def test_many_nodes_are_paged_and_read_as_far_as_shown() -> None:
    every = [node(f"node-{number:04d}".ljust(63, "x")) for number in range(5000)]

    def answer(path: str) -> dict[str, Any]:
        return {"nodes": every[: int(path.rpartition("=")[2])], "count": 5000}

    ports, asked = with_nodes(answer)
    async with open_console(ports) as client:
        _, page = await client.get("/nodes?page=3")
        assert asked == ["/api/v1/nodes?limit=150"]
        assert len(page.encode()) < 150_000
        assert page.count('scope="row"') == 50
        assert "node-0149" in page
        assert "Page 3 of 100" in page


async def test_one_node_is_asked_by_its_name() -> None:
    ports, asked = with_nodes(lambda _: {"nodes": [], "count": 5})
    async with open_console(ports) as client:
        _, page = await client.get("/nodes?name=a%26b")
    assert asked == ["/api/v1/nodes?name=a%26b"]
    assert "The extender knows no node a&amp;b among 5" in page


async def test_without_an_extender_the_page_says_what_to_do() -> None:
    async with open_console(make_ports(service("web"))) as client:
        status, page = await client.get("/nodes")
        assert status == 200
        assert "this console asks no extender" in page
        assert "start one with `podgate extender`" in page

    def refuse(_: str) -> bytes:
        raise UserError("no extender answers", "start one; tried:\n  here: refused")

    for answer, text in ((refuse, "no extender answers"), (lambda _: b"[]", "not as Podgate&#39;s extender")):
        ports, _ = with_nodes(answer)
        async with open_console(ports) as client:
            _, page = await client.get("/nodes")
            assert text in page
            assert "What helps: " in page


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_from_outside_stays_text(text: str) -> None:
    hostile = node(text, exceeds={text: text}, load={"source": text, "measured_at_seconds": 1.0})
    ports, _ = with_nodes(lambda _: {"nodes": [hostile], "count": 1, "unread": [text]})
    async with open_console(ports) as client:
        for path in ("/nodes", "/nodes?name=%3Cscript%3E"):
            check_text((await client.get(path))[1])


async def test_who_may_not_see_services_sees_no_node() -> None:
    ports, asked = with_nodes(lambda _: {"nodes": NODES, "count": 5})
    async with serve(ports) as served:
        for path in ("/nodes", "/api/v1/nodes"):
            assert (await served.get(path, "token-of-bob"))[0] == 403
        assert asked == []
        assert (await served.get("/nodes", "token-of-ann"))[0] == 200
