"""Live updates: what is sent, how often it is read, and who is dropped."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.harness.console import NOW, ConsoleClient, PreparedPort, breaker, make_ports, open_console, service
from tests.timeouts import HANG_SECONDS
from webhook.console import live_updates
from webhook.console.live_updates import BACKLOG_MAX, CLIENTS_MAX, LiveUpdates, TooManyClientsError
from webhook.console.pages import overview
from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.console_views.overview import ROWS
from webhook.errors import UserError


class Counter:
    """A page whose one cell counts how often it was read."""

    def __init__(self) -> None:
        self.reads = 0
        self.error = ""
        self.grows = True

    async def build(self) -> "Counter":
        self.reads += 1
        if self.error:
            raise UserError(self.error)
        return self

    time = NOW

    def list_cells(self) -> Cells:
        return {"count": LiveCell(str(self.reads) if self.grows else "same"), "name": LiveCell("\u202ex")}

    def list_order(self) -> list[str]:
        return ["a"]


def decode(event: bytes | None) -> tuple[str, dict[str, Any]]:
    assert event is not None
    first, second, *_ = event.decode().split("\n")
    return first.removeprefix("id: "), msgspec.json.decode(second.removeprefix("data: "))


async def test_the_first_event_has_all_cells_and_the_next_ones_what_has_changed() -> None:
    live, page = LiveUpdates(0.01), Counter()
    browser = live.subscribe("/", page.build, "")
    _, first = decode(await browser.events.get())
    _, second = decode(await browser.events.get())
    await live.close()
    assert first == {"cells": {"count": {"text": "1"}, "name": {"text": "\\u202ex"}}, "order": ["a"], "now": NOW}
    assert second["cells"] == {"count": {"text": "2"}}


async def test_browsers_of_one_page_share_its_reads_and_nobody_reads_alone() -> None:
    live, page = LiveUpdates(0.01), Counter()
    browsers = [live.subscribe("/", page.build, "") for _ in range(10)]
    await browsers[0].events.get()
    assert page.reads == 1
    for browser in browsers:
        live.unsubscribe("/", browser)
    await asyncio.sleep(0.05)
    assert page.reads == 1
    assert live.clients == 0


async def test_a_browser_that_comes_again_gets_what_it_has_not_seen() -> None:
    live, page = LiveUpdates(3600), Counter()
    first = live.subscribe("/", page.build, "")
    event_id, _ = decode(await first.events.get())
    same, behind = live.subscribe("/", page.build, event_id), live.subscribe("/", page.build, "other-1")
    assert same.events.empty()
    assert decode(behind.events.get_nowait())[1]["cells"]["count"] == {"text": "1"}
    await live.close()


async def test_a_slow_browser_is_dropped() -> None:
    live, page = LiveUpdates(0), Counter()
    slow = live.subscribe("/", page.build, "")
    async with asyncio.timeout(HANG_SECONDS):
        while not slow.is_dropped:  # noqa: ASYNC110  the updates run in this loop
            await asyncio.sleep(0)
    assert slow.events.qsize() == BACKLOG_MAX + 1
    await live.close()


async def test_the_number_of_browsers_is_bounded() -> None:
    live, page = LiveUpdates(3600), Counter()
    for number in range(CLIENTS_MAX):
        live.subscribe(str(number), page.build, "")
    with pytest.raises(TooManyClientsError):
        live.subscribe("/", page.build, "")
    await live.close()


async def test_a_page_that_cannot_be_read_says_so_and_keeps_what_it_shows() -> None:
    live, page = LiveUpdates(0.01), Counter()
    page.grows = False
    browser = live.subscribe("/", page.build, "")
    await browser.events.get()
    page.error = "no server"
    _, update = decode(await browser.events.get())
    assert (update["cells"], update["problem"]) == ({}, "what is shown is of 04:00:00 UTC: no server")
    page.error = ""
    _, update = decode(await browser.events.get())
    assert "problem" not in update
    await live.close()


async def read_event(client: ConsoleClient, page: str) -> tuple[aiohttp.ClientResponse, bytes]:
    answer = await client.session.get(client.running.url + "/api/v1/events", params={"page": page})
    async with asyncio.timeout(HANG_SECONDS):
        return answer, await answer.content.readuntil(b"\n\n") if answer.status == 200 else b""


async def test_events_are_of_the_page_that_is_asked_for() -> None:
    async with open_console(make_ports(service("web"), service("api", breaker=breaker("OPEN", 9)))) as client:
        answer, event = await read_event(client, "/?text=api")
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        _, update = decode(event)
        assert update["order"] == ["api"]
        assert update["cells"]["api/countdown"]["attributes"] == {"data-until": "2026-12-01T04:00:09.000Z"}
        answer.close()


@pytest.mark.parametrize("page", ["//[", "//xn--/", "//other.example/nowhere", "//", "http://["])
async def test_an_address_of_another_host_has_the_updates_of_the_first_page(page: str) -> None:
    async with open_console(make_ports(service("web"))) as client:
        answer, event = await read_event(client, page)
        assert answer.status == 200
        assert decode(event)[1]["order"] == ["web"]
        answer.close()


@pytest.mark.parametrize("page", ["/nowhere", "/static/console.css", "/api/v1/events"])
async def test_only_pages_have_events(page: str) -> None:
    async with open_console(make_ports(service("web"))) as client:
        answer, _ = await read_event(client, page)
        assert answer.status == 404


async def test_the_fiftyfirst_browser_is_asked_to_come_later() -> None:
    async with open_console(make_ports(service("web"))) as client:
        answers = [await read_event(client, "/") for _ in range(CLIENTS_MAX)]
        answer, _ = await read_event(client, "/")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        for opened, _ in answers:
            opened.close()


async def test_an_event_is_encoded_once_for_all_browsers_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[bytes] = []
    encode = live_updates._encode
    monkeypatch.setattr(live_updates, "_encode", lambda *given: encoded.append(encode(*given)) or encoded[-1])
    live, page = LiveUpdates(0.01), Counter()
    browsers = [live.subscribe("/", page.build, "") for _ in range(CLIENTS_MAX)]
    for _ in range(3):
        events = [await browser.events.get() for browser in browsers]
        assert len({id(event) for event in events}) == 1
    await live.close()
    assert 3 <= len(encoded) <= 3 + BACKLOG_MAX
    assert len(encoded) == page.reads


async def test_fifty_browsers_of_fifty_pages_cost_one_judgement_of_all_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What grows with the services is done once; what a browser costs is bounded by the rows of its page."""
    judged: list[int] = []
    judge = overview.judge_services

    def count(server: Any, *rest: Any) -> Any:
        judged.append(len(server.services))
        return judge(server, *rest)

    monkeypatch.setattr(overview, "judge_services", count)
    ports = make_ports(*(service(f"s-{number:04d}") for number in range(5000)))
    async with open_console(ports) as client:
        opened = [await read_event(client, f"/?page={number}") for number in range(1, CLIENTS_MAX + 1)]
        sizes = [len(decode(event)[1]["cells"]) for _, event in opened]
        # Connecting takes longer than what was judged stays fresh, on a busy machine.
        assert len(judged) < CLIENTS_MAX / 2
        assert set(judged) == {5000}
        assert isinstance(ports.plain, PreparedPort)
        assert ports.plain.paths.count("/status") == len(judged)
        assert max(sizes) < 10 * ROWS
        for answer, _ in opened:
            answer.close()
