"""The pipeline in a real browser: cards move by pointer, by keyboard and without scripts; its looks."""

from typing import Any

import pytest

from tests.browser.devtools import DESK, PHONE, Tab
from tests.console.pipeline_documents import SHOP, make_pipeline_ports
from tests.console.policies import PreparedPolicies
from tests.harness.console import open_console

LOOKS = {
    "pipeline": {"size": DESK},
    "pipeline-dark": {"size": DESK, "is_dark": True},
    "pipeline-phone": {"size": PHONE},
    "pipeline-zoomed": {"size": DESK, "zoom": 2},
}
NAMES = "[...document.querySelectorAll('.card h3')].map((title) => title.textContent).join()"


@pytest.mark.parametrize("name", LOOKS)
async def test_the_pipeline_is_accessible_and_fits_in_every_look(tab: Tab, name: str) -> None:
    looks: dict[str, Any] = LOOKS[name]
    async with open_console(make_pipeline_ports(PreparedPolicies(report=SHOP))) as client:
        await tab.set_size(**looks)
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.evaluate("document.querySelectorAll('.card details').forEach((shown) => shown.open = true)")
        await tab.shoot(name)
        assert await tab.list_violations() == []
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await tab.wait_for_load(tab.evaluate(click("move services/0 1")))
        await tab.wait_for_load(tab.evaluate("document.querySelector('button[value=candidate]').click()"))
        await tab.shoot(f"{name}-draft")
        assert await tab.list_violations() == []
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def click(value: str) -> str:
    return f"document.querySelector('button[value=\"{value}\"]').click()"


async def test_a_card_moves_by_pointer(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies(report=SHOP))) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.wait_for_load(drag(tab, "#service-0 .handle", "#service-1"))
        assert await tab.evaluate(NAMES) == "1. checkout,2. payments,3. shop"
        assert "Moved to place 2." in await tab.text("[role=status]")
        assert "Of the last 120 recorded Pods the draft denies 9, the policy in force 2." in await tab.text("main")
        await tab.wait_for_load(tab.evaluate("document.querySelector('#draft .buttons a').click()"))
        assert await tab.evaluate(NAMES) == "1. payments,2. checkout,3. shop"


async def test_an_entry_moves_by_pointer_within_its_list(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.evaluate("document.querySelector('#service-0 details').open = true")
        await tab.wait_for_load(drag(tab, "#service-0 .entry .handle", "#service-0 .entry:last-child"))
        assert "1h" in await tab.evaluate("document.querySelector('#service-0 .entry code').textContent")


async def drag(tab: Tab, handle: str, target: str) -> None:
    """Drag a handle by the pointer to the lower part of another element."""
    box = "document.querySelector('{at}').getBoundingClientRect()"
    spot = f"((box) => [box.left + 8, box.top + {{share}} * box.height])({box})"
    await tab.evaluate(f"document.querySelector('{handle}').scrollIntoView({{block: 'center'}})")
    places = (
        ("mousePressed", await tab.evaluate(spot.replace("{share}", "0.5").replace("{at}", handle))),
        ("mouseMoved", await tab.evaluate(spot.replace("{share}", "0.7").replace("{at}", target))),
        ("mouseMoved", await tab.evaluate(spot.replace("{share}", "0.8").replace("{at}", target))),
        ("mouseReleased", await tab.evaluate(spot.replace("{share}", "0.8").replace("{at}", target))),
    )
    for kind, (x, y) in places:
        await tab.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1, pointerType="mouse"
        )


async def test_a_card_moves_by_keyboard(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.evaluate("document.querySelector('#service-1 .moves button').focus()")
        assert ("button", "Up: checkout") in await tab.list_accessible()
        await tab.wait_for_load(tab.press("Enter"))
        assert await tab.evaluate(NAMES) == "1. checkout,2. payments,3. shop"


async def test_a_card_moves_without_scripts(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies(report=SHOP))) as client:
        await tab.set_scripts(on=False)
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        box = "document.querySelector('#service-1 .moves button').getBoundingClientRect()"
        spot = await tab.evaluate(f"((box) => [box.left + 5, box.top + 5])({box})")
        await tab.wait_for_load(press_at(tab, *spot))
        names = [name for role, name in await tab.list_accessible() if role == "heading"]
        assert names.index("1. checkout") < names.index("2. payments")


async def press_at(tab: Tab, x: float, y: float) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        await tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


async def test_mistakes_stay_readable(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(PreparedPolicies())) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.wait_for_load(tab.evaluate(click("move services/2 1")))
        assert "1 mistake" in await tab.text("#draft")
        await tab.shoot("pipeline-mistake")
        assert await tab.list_violations() == []
        await tab.open(client.running.url + "/policy/edit?draft=gone")
        assert "no longer kept" in await tab.text("main")
        tab.problems.clear()


async def test_without_policies_it_is_only_shown(tab: Tab) -> None:
    async with open_console(make_pipeline_ports(None)) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/policy/edit")
        await tab.shoot("pipeline-shown")
        assert await tab.list_violations() == []
