"""Who is let in: token, cookie, Host, Origin and Sec-Fetch-Site; and the headers of every answer."""

import asyncio
import re
from urllib.parse import quote

import aiohttp
import pytest

from tests.harness.console import make_ports, open_console, service
from tests.timeouts import HANG_SECONDS
from webhook.console import listener
from webhook.console.access import SECURITY_HEADERS
from webhook.console.local_access import LocalAccess
from webhook.errors import UserError

PORTS = make_ports(service("web"))


async def test_a_printed_address_lets_in_one_browser_once() -> None:
    async with open_console(PORTS) as client:
        address = client.running.issue_address()
        async with aiohttp.ClientSession() as first, aiohttp.ClientSession() as second:
            async with first.get(address, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/")
                cookie = answer.headers["Set-Cookie"]
            async with second.get(address) as answer:
                assert answer.status == 403
                assert "has been used" in await answer.text()
    port = client.running.url.rpartition(":")[2]
    assert re.fullmatch(rf"podgate-console-{port}=[\w-]{{43}}; HttpOnly; Path=/; SameSite=Strict", cookie)


async def test_no_page_and_no_log_has_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    async with open_console(PORTS) as client:
        token = client.running.issue_address().partition("token=")[2]
        cookie = client.cookie[1]
        for path in ("/", "/nowhere", "/api/v1/services", f"/?token={token}x"):
            _, text = await client.get(path)
            assert token not in text
            assert cookie not in text
        port = int(client.running.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /?token={token} HTTP/9\r\nCookie: {cookie}\r\n\r\n".encode())
        await reader.read()
        writer.close()
    assert token not in caplog.text
    assert cookie not in caplog.text


async def test_a_new_address_makes_the_former_one_void() -> None:
    async with open_console(PORTS) as client, aiohttp.ClientSession() as other:
        former = client.running.issue_address()
        client.running.issue_address()
        async with other.get(former) as answer:
            assert answer.status == 403


@pytest.mark.parametrize("path", ["/", "/api/v1/services", "/api/v1/events", "/nowhere", "/?token="])
async def test_without_the_cookie_nothing_is_shown(path: str) -> None:
    async with (
        open_console(PORTS) as client,
        aiohttp.ClientSession() as other,
        other.get(client.running.url + path) as answer,
    ):
        assert answer.status == 403
        assert "/service/" not in await answer.text()


def test_an_old_token_is_refused() -> None:
    now = [0.0]
    access = LocalAccess(lambda: now[0])
    token = access.issue_token()
    now[0] = 601.0
    with pytest.raises(Exception, match="too old"):
        access._exchange(token, None)  # type: ignore[arg-type]  # it is not reached


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "192.168.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_a_request_of_another_site_is_refused(headers: dict[str, str]) -> None:
    async with open_console(PORTS) as client:
        for path in ("/", "/static/console.css"):
            status, _ = await client.get(path, **headers)
            assert status == 403


async def test_a_host_of_loopback_is_served() -> None:
    async with open_console(PORTS) as client:
        port = client.running.url.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            cookie = "=".join(client.cookie)
            status, _ = await client.get("/", Host=host, Cookie=cookie)
            assert status == 200


PATHS = ["/", "/static/console.css", "/static/console.js", "/static/none", "/nowhere", "/api/v1/services", "/?page=x"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_every_answer_has_the_headers(path: str, method: str) -> None:
    async with open_console(PORTS) as client:
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with client.session.request(method, client.running.url + path, headers=headers) as answer:
            assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS)


async def test_a_malformed_request_is_answered_without_its_words_and_with_the_headers() -> None:
    async with open_console(PORTS) as client:
        port = int(client.running.url.rpartition(":")[2])
        for sent in (b"GET / HTTP/9\r\n\r\n", b"<script>\r\n\r\n", b"GET /?" + b"secret" * 2000 + b" HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            answer = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            assert answer.partition("\r\n")[0] == "HTTP/1.0 400 Bad Request", answer
            assert all(f"{name}: {value}" in answer for name, value in SECURITY_HEADERS.items())
            assert "script>" not in answer
            assert "secret" not in answer


@pytest.mark.parametrize("value", [b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b'"\\377"'])
async def test_a_cookie_or_a_token_of_any_bytes_is_refused(value: bytes) -> None:
    async with open_console(PORTS) as client:
        client.running.issue_address()
        port, name = client.running.url.rpartition(":")[2], client.cookie[0]
        for line, header in (
            (b"GET /", b"Cookie: " + name.encode() + b"=" + value),
            (b"GET /?token=" + quote(value).encode(), b"X: y"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + header + b"\r\n\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer.startswith(b"HTTP/1.1 403 "), answer


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 3)
    async with open_console(PORTS) as client:
        port = int(client.running.url.rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]  # and the client's own
        ended = [asyncio.create_task(reader.read()) for reader, _ in opened]
        done, waiting = await asyncio.wait(ended, timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert done
        assert waiting
        for task in waiting:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for _, writer in opened:
            writer.close()


async def test_errors_have_the_headers_and_no_stack_trace() -> None:
    def fail() -> bytes:
        raise RuntimeError("a secret of the stack")

    ports = make_ports(service("web"))
    ports.plain.answers["/status"] = fail  # type: ignore[attr-defined]  # a prepared port
    async with open_console(ports) as client, client.session.get(client.running.url) as answer:
        assert answer.status == 500
        assert answer.headers["Content-Security-Policy"] == SECURITY_HEADERS["Content-Security-Policy"]
        assert "secret" not in await answer.text()


async def test_a_server_that_does_not_answer_is_named_with_its_remedy() -> None:
    ports = make_ports(service("web"))
    ports.plain.answers["/status"] = UserError("no server answers at <b>\n  here\n  there", "start one")  # type: ignore[attr-defined]
    async with open_console(ports) as client:
        status, text = await client.get("/")
        assert status == 502
        assert "no server answers at &lt;b&gt;" in text
        assert "start one" in text
        assert "\\x0a" not in text, "lines stay lines"
