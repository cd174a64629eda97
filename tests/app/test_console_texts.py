"""Texts from outside on every page and form of a console beside a real server: they stay text."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest

from tests.cli.command_runner import podgate
from tests.harness.console_process import start_console
from tests.harness.inert_page import HOSTILE, UNSEEN, find_alive
from tests.harness.server_process import Files, pod, run_server
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask
from webhook.console.registry import list_acts, list_pages

SERVICE = "payment-api"


def make_pod() -> dict[str, object]:
    made = pod(SERVICE)
    made["metadata"] |= {"labels": {"app": HOSTILE, "team": UNSEEN}, "annotations": {HOSTILE: UNSEEN}}
    return made


def list_paths() -> Iterator[str]:
    """Yield every page, its JSON form, and every form, each with hostile parameters too."""
    query = {"text": HOSTILE + UNSEEN, "pod": f"payments/{HOSTILE}", "reason": UNSEEN, "for": HOSTILE, "to": "x"}
    for path in (*(page.path for page in list_pages()), *(act.path for act in list_acts())):
        names = re.findall(r"\{(\w+)", path)
        plain = re.sub(r"\{(\w+)[^}]*\}", SERVICE, path)
        yield from (plain, f"{plain}?{urlencode(query)}")
        if names:
            part = urlencode({"": HOSTILE + UNSEEN})[1:].replace("+", "%20")
            yield re.sub(r"\{(\w+)[^}]*\}", part, path)
    yield from ("/api/v1/services", f"/%3Cscript%3E?{urlencode(query)}")


@pytest.mark.parametrize("message", [HOSTILE, UNSEEN])
def test_the_check_finds_what_is_alive(message: str) -> None:
    assert find_alive(f"<p>{message}</p>")
    assert find_alive('<a href="javascript:alert(1)">x</a>')
    assert find_alive('<p>&lt;script&gt;</p><script type="module" src="/static/console.js"></script>') == []


async def test_texts_from_outside_stay_text_on_every_page(tmp_path: Path) -> None:
    overrides = tmp_path / "overrides.yaml"
    terms = ("--reason", HOSTILE, "--for", "1h", "--overrides", overrides)
    done = await asyncio.to_thread(podgate, "breaker", "open", SERVICE, *terms)
    assert done.code == 0, done.err
    async with run_server(Files.create(tmp_path), "--overrides", str(overrides)) as server:
        for number in range(6):
            await server.create(Ask(make_pod(), "payments", f"uid-{number}{UNSEEN}", HOSTILE + UNSEEN))
        where = ("--server", f"http://{server.plain}", "--decisions", f"http://{server.decisions}")
        arguments = (*where, "--kubeconfig", str(tmp_path / "none"), "--overrides", str(overrides))
        process, address, log = await start_console(tmp_path, *arguments)
        url = address.partition("/?")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(address) as answer:
                assert answer.status == 200
            for path in list_paths():
                async with session.get(url + path) as answer:
                    text = await answer.text()
                if answer.content_type == "application/json":
                    assert text.isprintable(), path
                    msgspec.json.decode(text)
                else:
                    assert (path, answer.status, find_alive(text)) == (path, answer.status, [])
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            async with session.get(url + "/api/v1/events?page=/") as answer, asyncio.timeout(HANG_SECONDS):
                event = (await answer.content.readuntil(b"\n\n")).decode()
            assert event.replace("\n", "").isprintable()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0
    assert "Traceback" not in log.read_text()
