"""The overview in a real browser: order, looks, keyboard, without scripts, and its live updates."""

from typing import Any

import pytest

from tests.browser.devtools import DESK, PHONE, Tab
from tests.harness.console import NOW, PreparedPort, breaker, make_ports, open_console, service
from webhook.errors import UserError

SERVICES = (
    service("ledger", breaker=breaker("OPEN", 272)),
    service("payment-api", used=50),
    service("checkout", breaker=breaker("HALF_OPEN")),
    service("search", used=44),
    service("reports", used=None, breaker=None),
    *(service(f"team-{number}") for number in range(8)),
)
QUEUES = [{"service": "team-3", "waiting": 23, "oldestSeconds": 41}]
LOOKS = {
    "overview": {"size": DESK},
    "overview-dark": {"size": DESK, "is_dark": True},
    "overview-phone": {"size": PHONE},
    "overview-zoomed": {"size": DESK, "zoom": 2},
}


@pytest.mark.parametrize("name", LOOKS)
async def test_the_overview_is_accessible_and_fits_in_every_look(tab: Tab, name: str) -> None:
    looks: dict[str, Any] = LOOKS[name]
    async with open_console(make_ports(*SERVICES, queues=QUEUES)) as client:
        await tab.set_size(**looks)
        await tab.open(client.running.issue_address())
        text = await tab.text("table")
        assert text.index("ledger") < text.index("checkout") < text.index("payment-api") < text.index("team-3")
        await tab.shoot(name)
        assert await tab.list_violations() == []
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_names_are_in_the_accessibility_tree(tab: Tab) -> None:
    async with open_console(make_ports(*SERVICES)) as client:
        await tab.open(client.running.issue_address())
        found = await tab.list_accessible()
    assert {("heading", "Services"), ("link", "ledger"), ("columnheader", "Breaker"), ("button", "Filter")} <= set(
        found
    )


async def test_the_keyboard_alone_reaches_and_filters(tab: Tab) -> None:
    async with open_console(make_ports(*SERVICES)) as client:
        await tab.open(client.running.issue_address())
        await tab.press("Tab")
        assert await tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        await tab.press("Enter")
        await tab.press("Tab")
        assert await tab.evaluate("document.activeElement.id") == "text"
        await tab.write("pay")
        await tab.wait_for_load(tab.press("Enter"))
        assert "payment-api" in await tab.text("table")
        assert "ledger" not in await tab.text("table")


async def test_the_page_works_without_scripts(tab: Tab) -> None:
    async with open_console(make_ports(*SERVICES)) as client:
        await tab.set_scripts(on=False)
        await tab.open(client.running.issue_address())
        names = [name for role, name in await tab.list_accessible() if role == "rowheader"]
    assert len(names) == len(SERVICES)
    assert names[0].startswith("ledger")


async def test_a_countdown_moves_and_a_change_arrives(tab: Tab) -> None:
    ports = make_ports(*SERVICES)
    assert isinstance(ports.plain, PreparedPort)
    document = ports.plain.answers["/status"]
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        element = "document.querySelector('[data-live=\"ledger/countdown\"]').textContent"
        first = await tab.evaluate(element)
        await tab.wait_until(f"{element} !== {first!r}")
        closed = [service("ledger"), *SERVICES[1:]]
        ports.plain.answers["/status"] = {**document, "time": NOW, "services": closed}
        await tab.wait_until("document.querySelector('[data-live=\"ledger/breaker\"]').textContent === 'Closed'")
        assert await tab.evaluate(element) == ""
        await tab.wait_until("!document.getElementById('changed').hidden")
        await tab.wait_for_load(tab.evaluate("document.querySelector('#changed a').click()"))
        assert "payment-api" in (await tab.text("tbody"))[:200]


async def test_a_server_that_is_gone_is_told_and_comes_back(tab: Tab) -> None:
    ports = make_ports(*SERVICES)
    assert isinstance(ports.plain, PreparedPort)
    document = ports.plain.answers["/status"]
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        ports.plain.answers["/status"] = UserError("no server answers")
        await tab.wait_until("document.getElementById('problem').textContent.endsWith('no server answers')")
        await tab.shoot("overview-no-server")
        ports.plain.answers["/status"] = {**document, "notReady": ["draining"]}
        await tab.wait_until("document.getElementById('problem').hidden")
        await tab.wait_until("!document.getElementById('changed').hidden")


HOSTILE = "<img src=x onerror=alert(1)>\u202e"


async def test_markup_in_a_name_stays_text_also_in_updates(tab: Tab) -> None:
    ports = make_ports(service(HOSTILE, breaker=breaker("OPEN", 60, reason=HOSTILE)))
    assert isinstance(ports.plain, PreparedPort)
    document = ports.plain.answers["/status"]
    async with open_console(ports) as client:
        await tab.open(client.running.issue_address())
        again = [service(HOSTILE, breaker=breaker(HOSTILE, reason="<script>alert(2)</script>"))]
        ports.plain.answers["/status"] = {**document, "services": again}
        await tab.wait_until("document.querySelector('.breaker').textContent.startsWith('<img src=x')")
        assert await tab.evaluate("document.images.length") == 0
        assert "\\u202e" in await tab.text("tbody th")


async def test_a_violation_would_be_found(tab: Tab) -> None:
    async with open_console(make_ports(*SERVICES)) as client:
        await tab.open(client.running.issue_address())
        await tab.evaluate("document.querySelector('label').remove()")
        [violation] = await tab.list_violations()
        assert violation.startswith("label: ")
        await tab.evaluate("document.body.appendChild(document.createElement('style')).textContent = 'p {}'")
        await tab.wait_until("true")
        assert any("ContentSecurityPolicy" in problem or "Content Security" in problem for problem in tab.problems)
        tab.problems.clear()


async def test_the_error_page_is_accessible(tab: Tab) -> None:
    async with open_console(make_ports()) as client:
        await tab.open(client.running.issue_address())
        assert "has no service yet" in await tab.text("main")
        assert await tab.list_violations() == []
        await tab.shoot("overview-empty")
        await tab.open(client.running.url + "/nowhere")
        await tab.shoot("error")
        assert await tab.list_violations() == []
        [problem] = tab.problems
        assert "404" in problem
        tab.problems.clear()
