"""The page of a Pod's story in a real browser."""

import pytest

from tests.browser.devtools import Tab
from tests.browser.looks import LOOKS, check_look, read_without_scripts
from tests.harness.console import open_console
from tests.harness.console_reports import DENIED, RUNNING, WAITING, with_report

PATH = "/explain?pod=shop/web-5f-x2x9k"


@pytest.mark.parametrize("look", LOOKS)
async def test_a_denial_is_accessible_and_fits(tab: Tab, look: str) -> None:
    ports, _ = with_report(DENIED)
    async with open_console(ports) as client:
        await check_look(tab, client, PATH, "explain", look)
        assert "hard 50, used 50" in await tab.text("main")


async def test_other_states_and_the_form_are_accessible(tab: Tab) -> None:
    for report, name in ((WAITING, "waiting"), (RUNNING, "running"), (None, "unknown")):
        ports, _ = with_report(report, nodes="HTTP 403")
        async with open_console(ports) as client:
            await check_look(tab, client, PATH, f"explain-{name}", "")
            await check_look(tab, client, "/explain", "explain-form", "")
            await check_look(tab, client, "/explain?what=widget/web", "explain-bad", "")


async def test_a_story_is_told_without_scripts(tab: Tab) -> None:
    ports, _ = with_report(WAITING)
    async with open_console(ports) as client:
        text = await read_without_scripts(tab, client, PATH)
    assert "WaitingForQuota" in text
    assert "5th of 21 in gold" in text


async def test_the_keyboard_asks_and_the_countdown_moves(tab: Tab) -> None:
    ports, asked = with_report(WAITING)
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/explain")
        await tab.evaluate("document.getElementById('what').focus()")
        await tab.write("deploy/web")
        await tab.wait_for_load(tab.press("Enter"))
        assert str(asked[0]) == "deployment.apps default/web"
        moment = "document.querySelector('.verdict .countdown').textContent"
        first = await tab.evaluate(moment)
        await tab.wait_until(f"{moment} !== {first!r}")
