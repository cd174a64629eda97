"""Forms in a real browser: an act from its form to its notice, and the login of a console in the cluster."""

import shlex
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.browser.devtools import PHONE, Tab
from tests.console.acting import HANDS, PATH, Painter, PreparedCluster, install_act, make_hands
from tests.console.token_serving import serve
from tests.harness.console import breaker, make_ports, open_console, service, shares
from webhook.console.interface.act import REASON
from webhook.console.registry import list_acts


async def test_an_act_by_keyboard_alone(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    painter = Painter()
    install_act(monkeypatch, painter)
    async with open_console(make_ports(service("web")), HANDS) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + PATH)
        assert await tab.list_violations() == []
        await tab.evaluate("document.getElementById('field-reason').focus()")
        await tab.write("INC-1 <b>")
        await tab.shoot("act")
        await tab.wait_for_load(tab.press("Enter"))
        assert "paints web red" in await tab.text("main")
        assert await tab.list_violations() == []
        await tab.set_size(PHONE)
        await tab.shoot("act-confirm-phone")
        assert painter.painted == []
        await tab.evaluate("document.querySelector('button[type=submit]').focus()")
        await tab.wait_for_load(tab.press("Enter"))
        assert painter.painted == [("web", "red")]
        assert "painted red" in await tab.text("[role=status]")


async def test_every_act_is_a_form_that_anybody_can_use(tab: Tab, tmp_path: Path) -> None:
    """Axe finds nothing in any form and any confirmation, and the command is as it was typed."""
    filled = {"window": "1m", "hard": "pods=100", "factor": "3", "pod": "shop/web-x7", "reason": "INC-1 it's <b>"}
    divided = service("web", shares=shares({"spot": breaker("OPEN", 30), "on-demand": None}))
    async with open_console(make_ports(divided), make_hands(tmp_path / "o", PreparedCluster())) as client:
        await tab.open(client.running.issue_address())
        for act in list_acts():
            await tab.open(f"{client.running.url}{act.path.format(name='web', variant='spot')}?{urlencode(filled)}")
            assert await tab.list_violations() == [], act.name
            await tab.shoot(f"act-{act.name}")
            await tab.wait_for_load(tab.evaluate("document.querySelector('main button[type=submit]').click()"))
            assert "The same on the command line:" in await tab.text("main"), act.name
            assert await tab.list_violations() == [], act.name
            await tab.shoot(f"act-{act.name}-confirm")
            command = shlex.split(await tab.text("#command"))
            assert command[0] == "podgate"
            assert ("--reason" in command) == (REASON in act.fields)
            assert "--reason" not in command or filled["reason"] in command


async def test_a_variant_is_opened_from_the_page_of_its_service(tab: Tab, tmp_path: Path) -> None:
    overrides = tmp_path / "overrides.yaml"
    divided = service("web", shares=shares({"spot": breaker("HALF_OPEN"), "on-demand": None}))
    async with open_console(make_ports(divided), make_hands(overrides)) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + "/service/web")
        assert await tab.list_violations() == []
        await tab.shoot("service-variants")
        link = "[...document.querySelectorAll('a')].find(found => found.textContent === 'Open spot')"
        await tab.wait_for_load(tab.evaluate(f"{link}.click()"))
        await tab.evaluate("document.getElementById('field-reason').focus()")
        await tab.write("INC-1")
        await tab.wait_for_load(tab.press("Enter"))
        assert "get the variant after spot" in await tab.text("main")
        command = shlex.split(await tab.text("#command"))
        assert command[:6] == ["podgate", "breaker", "open", "web", "--variant", "spot"]
        assert not overrides.exists()
        await tab.wait_for_load(tab.evaluate("document.querySelector('main button[type=submit]').click()"))
        assert "web: variant: spot" in await tab.text("[role=status]")
        assert "INC-1" in overrides.read_text()


async def test_a_refused_form_says_why(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    install_act(monkeypatch, Painter())
    async with open_console(make_ports(service("web")), HANDS) as client:
        await tab.open(client.running.issue_address())
        await tab.open(client.running.url + PATH + "?colour=blue&reason=x")
        await tab.wait_for_load(tab.evaluate("document.querySelector('button[type=submit]').click()"))
        assert "no blue <i>is left\n\nWhat helps: take red" in await tab.text("[role=alert]")
        assert await tab.list_violations() == []
        await tab.shoot("act-error")
        [problem] = tab.problems
        assert "400" in problem
        tab.problems.clear()


async def test_a_login_and_its_end(tab: Tab) -> None:
    async with serve() as served:
        await tab.open(served.url)
        assert await tab.list_violations() == []
        await tab.shoot("login")
        await tab.evaluate("document.getElementById('token').focus()")
        await tab.write("token-of-ann")
        await tab.wait_for_load(tab.press("Enter"))
        assert "as ann" in await tab.text("header")
        assert await tab.list_violations() == []
        await tab.shoot("logged-in")
        await tab.wait_for_load(tab.evaluate("document.querySelector('header button').click()"))
        assert "Log in" in await tab.text("h1")
        assert all("401" in problem for problem in tab.problems)
        tab.problems.clear()
