"""The nodes page in a real browser."""

import pytest

from tests.browser.devtools import Tab
from tests.browser.looks import LOOKS, check_look, read_without_scripts
from tests.harness.console import make_ports, open_console
from tests.harness.console_rows import NODES, node, with_nodes


@pytest.mark.parametrize("look", LOOKS)
async def test_nodes_are_accessible_and_fit(tab: Tab, look: str) -> None:
    ports, _ = with_nodes(lambda _: {"nodes": NODES, "count": 5})
    async with open_console(ports) as client:
        await check_look(tab, client, "/nodes", "nodes", look)
        assert "cpu is hot, for a, b, c" in await tab.text("table")


async def test_nodes_are_shown_without_scripts(tab: Tab) -> None:
    ports, _ = with_nodes(lambda _: {"nodes": NODES, "count": 5})
    async with open_console(ports) as client:
        assert "Silent" in await read_without_scripts(tab, client, "/nodes")


async def test_a_node_that_cools_is_updated(tab: Tab) -> None:
    shown = [NODES[0]]
    ports, _ = with_nodes(lambda _: {"nodes": shown, "count": 1})
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/nodes")
        shown[:] = [node("hot")]
        await tab.wait_until("document.querySelector('[data-live=\"hot/state\"]').textContent === 'Cool'")
        assert (
            await tab.evaluate("document.querySelector('[data-live=\"hot/cpu-gauge\"]').getAttribute('width')") == "42"
        )


async def test_a_console_without_an_extender_says_what_to_do(tab: Tab) -> None:
    async with open_console(make_ports()) as client:
        await check_look(tab, client, "/nodes", "nodes-none", "")
        assert "What helps" in await tab.text("main")
