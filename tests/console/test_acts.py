"""The flow of an act: form, confirmation with the command line, and what has happened; and who may not act."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.console.acting import FORM, HANDS, PATH, Painter, install_act
from tests.harness.console import ConsoleClient, make_ports, open_console, service
from tests.timeouts import HANG_SECONDS
from webhook.console import access


@pytest.fixture
def painter(monkeypatch: pytest.MonkeyPatch) -> Painter:
    painter = Painter()
    install_act(monkeypatch, painter)
    return painter


async def send(client: ConsoleClient, **form: str) -> tuple[int, str]:
    return await client.post(PATH, {**FORM, "form_token": client.form_token, **form})


async def test_an_act_asks_once_and_says_what_happened(painter: Painter) -> None:
    async with open_console(make_ports(service("web")), HANDS) as client:
        status, page = await client.get(PATH + "?colour=blue")
        assert status == 200
        assert "<h1>Paint web</h1>" in page
        assert "<option selected>blue</option>" in page
        status, page = await send(client)
        assert (status, painter.painted) == (200, [])
        assert "paints web red" in page
        assert "podgate paint &#39;INC-1 &lt;b&gt;&#39;" in page
        status, place = await send(client, confirmed="yes")
        assert (status, painter.painted) == (303, [("web", "red")])
        _, page = await client.get(place)
        assert "painted red" in page


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"reason": " "}, "Reason: missing"),
        ({"colour": "green"}, "Colour: &#39;green&#39;: no such choice"),
        ({"colour": "blue", "confirmed": "yes"}, "Nothing was done: no blue &lt;i&gt;is left"),
    ],
)
async def test_a_bad_form_comes_back_with_its_error(painter: Painter, form: dict[str, str], error: str) -> None:
    async with open_console(make_ports(service("web")), HANDS) as client:
        status, page = await send(client, **form)
    assert (status, painter.painted) == (400, [])
    assert error in page


@pytest.mark.parametrize("token", ["", "wrong", "\u202e"])
async def test_a_form_without_this_sessions_token_does_nothing(painter: Painter, token: str) -> None:
    async with open_console(make_ports(service("web")), HANDS) as client:
        status, _ = await send(client, form_token=token, confirmed="yes")
    assert (status, painter.painted) == (403, [])


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Cookie": "podgate-console=x"},
    ],
    ids=str,
)
async def test_a_form_of_another_site_does_nothing(painter: Painter, headers: dict[str, str]) -> None:
    async with open_console(make_ports(service("web")), HANDS) as client:
        form = {**FORM, "form_token": client.form_token, "confirmed": "yes"}
        if "Cookie" in headers:
            client.session.cookie_jar.clear()
        status, _ = await client.post(PATH, form, **headers)
    assert (status, painter.painted) == (403, [])


async def test_a_browser_that_names_no_origin_may_act(painter: Painter) -> None:
    """Under the policy `no-referrer` a browser sends the origin `null` with each form."""
    async with open_console(make_ports(service("web")), HANDS) as client:
        form = {**FORM, "form_token": client.form_token, "confirmed": "yes"}
        assert (await client.post(PATH, form, Origin="null"))[0] == 303
        assert (await client.post(PATH, form, **{"Origin": "null", "Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert len(painter.painted) == 1


async def test_a_form_that_drips_is_given_up(painter: Painter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_FORM_SECONDS", 0.05)

    async def drip() -> AsyncIterator[bytes]:
        yield b"colour="
        await asyncio.sleep(HANG_SECONDS)

    async with open_console(make_ports(service("web")), HANDS) as client:
        headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        async with client.session.post(client.running.url + PATH, data=drip(), headers=headers) as answer:
            assert answer.status == 408
    assert painter.painted == []


async def test_without_hands_no_route_acts(painter: Painter) -> None:
    async with open_console(make_ports(service("web"))) as client:
        for method in ("GET", "POST"):
            sent = {"Sec-Fetch-Site": "same-origin"}
            async with client.session.request(method, client.running.url + PATH, headers=sent) as answer:
                assert answer.status == 404
    assert painter.painted == []


async def test_an_address_cannot_make_a_page_say_something(painter: Painter) -> None:  # noqa: ARG001  its fixture
    async with open_console(make_ports(service("web")), HANDS) as client:
        _, page = await client.get("/?done=Call+this+number")
    assert "Call this number" not in page
