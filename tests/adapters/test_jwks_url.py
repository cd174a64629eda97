"""The key set of a URL, from a real TLS server with every possible fault."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from certs.files import write_key_pair
from tests.harness.identity import Pki, jwks, signer
from tests.harness.server_process import TREE, Files, run_server
from tests.timeouts import HANG_SECONDS
from webhook.adapters.jwks_url import JwksUrl
from webhook.authentication.published_keys import PublishedKeys
from webhook.errors import UserError
from webhook.ports import KEY_SET_BYTES_MAX
from webhook.support.condition import Condition

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
ONE = signer()
KID = ONE.jwk()["kid"]


def respond(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else body.encode()
        return web.Response(body=raw, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


async def send_endless_body(request: web.Request) -> web.StreamResponse:
    """Send a body without an end and without a Content-Length."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def abort_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100000"})
    await response.prepare(request)
    await response.write(b'{"keys": [')
    assert request.transport is not None
    request.transport.abort()
    return response


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@dataclass
class Issuer:
    """A server that publishes keys."""

    url: str
    ca: Path
    answer: Answer = field(default_factory=lambda: respond(jwks(ONE)))
    seen: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        return await self.answer(request)


@asynccontextmanager
async def run_key_server(folder: Path, context: Callable[[Pki], ssl.SSLContext] | None = None) -> AsyncIterator[Issuer]:
    pki = Pki.create(folder, "issuer-ca")
    issuer = Issuer("", folder / "ca.crt")
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", issuer.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=(context or server_side)(pki))
    await site.start()
    issuer.url = f"https://localhost:{runner.addresses[0][1]}/jwks.json"
    try:
        yield issuer
    finally:
        await runner.cleanup()


def server_side(pki: Pki) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.paths.certificate, pki.paths.key)
    return context


def make_context_of_another_name(pki: Pki) -> ssl.SSLContext:
    leaf = pki.authority.issue_server("elsewhere.example", ())
    write_key_pair(leaf, pki.folder / "other.crt", pki.folder / "other.key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.folder / "other.crt", pki.folder / "other.key")
    return context


@pytest.fixture
async def issuer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Issuer]:
    async with run_key_server(tmp_path_factory.mktemp("issuer")) as found:
        yield found


async def test_valid_key_set_is_fetched_without_credentials(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    issuer.answer = respond(jwks(ONE), Set_Cookie="a=b")
    fetching = JwksUrl(issuer.url, issuer.ca)
    document = await fetching.fetch()
    assert (document.name, document.content.decode(), document.issuer) == (issuer.url, jwks(ONE), None)
    await fetching.fetch()
    for request in issuer.seen:
        assert (request.method, request.path) == ("GET", "/jwks.json")
        assert request.headers.keys() & {"Authorization", "Cookie", "Referer"} == set()
        assert request.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (respond("", 301, Location="https://localhost/other"), "HTTP 301, and redirects are not followed"),
        (respond("", 302, Location="/jwks2.json"), "HTTP 302"),
        (respond("", 308, Location="/jwks2.json"), "HTTP 308"),
        (respond("", 500), "HTTP 500"),
        (respond("", 404), "HTTP 404"),
        (respond("", 204), "HTTP 204"),
        (respond(jwks(ONE), 203), "HTTP 203"),
        (respond("<html>"), "not JSON"),
        (respond(""), "not JSON"),
        (respond(b"\xff\xfe"), "not JSON"),
        (respond(b"\x1f\x8b\x08", Content_Encoding="gzip"), "not JSON"),
        (respond("[" * 100_000), "not JSON"),
        (respond("{}"), '"keys" must be a list'),
        (respond('{"keys": []}'), '"keys" must be a list of 1 to 128 keys'),
        (respond(json.dumps({"keys": [ONE.jwk()] * 129})), '"keys" must be a list of 1 to 128 keys'),
        (respond(json.dumps({"keys": [{**ONE.jwk(), "use": "enc"}]})), "no key of the set can be used"),
        (respond(" " * (KEY_SET_BYTES_MAX + 1)), f"more than {KEY_SET_BYTES_MAX} bytes"),
        (send_endless_body, f"more than {KEY_SET_BYTES_MAX} bytes"),
        (abort_body, "localhost"),
        (respond(jwks(ONE), X_Long="x" * 100_000), "localhost"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_invalid_answer_is_reported_and_redirects_not_followed(issuer: Issuer, answer: Answer, says: str) -> None:
    issuer.answer = answer
    with pytest.raises(UserError) as refused:
        await PublishedKeys(JwksUrl(issuer.url, issuer.ca), Condition(lambda _: None, lambda _: None)).fetch()
    assert says in str(refused.value)
    assert [request.path for request in issuer.seen] == ["/jwks.json"]


async def test_server_of_another_ca_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    Pki.create(tmp_path / "other")
    for ca in (tmp_path / "other" / "ca.crt", None):
        with pytest.raises(UserError, match=r"(?i)certificate"):
            await JwksUrl(issuer.url, ca).fetch()
    assert issuer.seen == []


async def test_server_of_another_name_is_refused(tmp_path: Path) -> None:
    async with run_key_server(tmp_path, make_context_of_another_name) as issuer:
        with pytest.raises(UserError, match=r"(?i)certificate"):
            await JwksUrl(issuer.url, issuer.ca).fetch()


async def test_replaced_ca_applies_to_the_next_fetch(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    Pki.create(tmp_path / "other")
    pinned = tmp_path / "pinned.crt"
    pinned.write_bytes(issuer.ca.read_bytes())
    fetching = JwksUrl(issuer.url, pinned)
    await fetching.fetch()
    pinned.write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(UserError, match=r"(?i)certificate"):
        await fetching.fetch()
    pinned.write_text("no PEM")
    with pytest.raises(UserError, match=r"pinned\.crt: no CA in it can be used"):
        await fetching.fetch()


def test_invalid_ca_is_reported_at_the_start(tmp_path: Path) -> None:
    for content in (b"", b"no PEM", b"\xff"):
        (tmp_path / "ca.crt").write_bytes(content)
        with pytest.raises(UserError, match="no CA in it can be used"):
            JwksUrl("https://localhost/", tmp_path / "ca.crt")


def test_ca_file_may_have_non_ascii_comments(issuer: Issuer, tmp_path: Path) -> None:
    pinned = tmp_path / "pinned.crt"
    pinned.write_bytes("# Zertifizierungsstelle für Schlüssel\n".encode() + issuer.ca.read_bytes())
    JwksUrl(issuer.url, pinned)


async def test_unreachable_server_is_reported(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ca = Pki.create(tmp_path / "other").folder / "ca.crt"
    with pytest.raises(UserError, match="localhost:9"):
        await JwksUrl("https://localhost:9/", ca).fetch()


# With a running server


async def test_server_loads_a_new_key_at_its_first_call(issuer: Issuer, tmp_path: Path) -> None:
    files = files_of(tmp_path, issuer)
    issuer.answer = respond(jwks(files.signer))
    newcomer = signer()
    async with run_server(files) as server:
        await server.wait_for_metric('podgate_keys{source="url"}', 1)
        assert (await server.get("/readyz"))[0] == 200
        assert (await server.post("/nowhere"))[0] == 404
        issuer.answer = respond(jwks(newcomer))
        await asyncio.sleep(5.1)  # the cool-down after the first fetch
        assert (await server.post("/nowhere", token=newcomer.token()))[0] == 404
        assert (await server.post("/nowhere"))[0] == 401, "its signing key was removed"
        assert await server.metric('podgate_key_fetches_total{result="success",source="url"}') == 2


async def test_server_without_keys_is_not_ready_and_refuses_calls(issuer: Issuer, tmp_path: Path) -> None:
    files = files_of(tmp_path, issuer)
    issuer.answer = respond("", 503)
    async with run_server(files, "--jwks-max-stale", "4s") as server:
        await server.wait_for_metric('podgate_key_fetches_total{result="failure",source="url"}', 1)
        assert await server.get("/readyz") == (
            503,
            f"no keys from url: {issuer.url}: HTTP 503, and redirects are not followed\n",
        )
        issuer.answer = respond(jwks(files.signer))
        await server.wait_for_metric('podgate_keys{source="url"}', 1)
        issuer.answer = respond("", 503)
        async with asyncio.timeout(HANG_SECONDS):
            while (await server.get("/readyz"))[0] == 200:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
        status, text = await server.get("/readyz")
        assert (status, text.startswith("no keys from url: ")) == (503, True), text
        lines = map(json.loads, (files.folder / "server-0.log").read_text().splitlines())
        *_, ended = [line for line in lines if line["msg"] == "keys expired, tokens signed with them are rejected"]
        assert (ended["level"], ended["source"], "HTTP 503" in ended["reason"]) == ("error", "url", True)
        assert (await server.post("/nowhere"))[0] == 401
        assert await server.metric('podgate_refused_calls_total{reason="authentication_unknown_key"}') >= 1
        issuer.answer = respond(jwks(files.signer))
        await server.wait_for_metric('podgate_keys{source="url"}', 1)
        assert (await server.get("/readyz"))[0] == 200


async def test_without_a_ca_the_system_cas_verify_the_server(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` hides the system's CAs while it imports libraries. The URL's context is made afterwards, with them."""
    files = replace(files_of(tmp_path, issuer), keys_from=("--jwks-url", issuer.url))
    issuer.answer = respond(jwks(files.signer))
    monkeypatch.setenv("SSL_CERT_FILE", str(issuer.ca))
    async with run_server(files, tree=TREE) as server:
        await server.wait_for_metric('podgate_keys{source="url"}', 1)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.pki.paths.client_ca))
    async with run_server(files, tree=TREE) as server:
        await server.wait_for_metric('podgate_key_fetches_total{result="failure",source="url"}', 1)
        assert "certificate verify failed" in (await server.get("/readyz"))[1]


def files_of(folder: Path, issuer: Issuer) -> Files:
    return replace(Files.create(folder), keys_from=("--jwks-url", issuer.url, "--jwks-ca", str(issuer.ca)))


async def test_no_call_fails_during_key_rotation(issuer: Issuer, tmp_path: Path) -> None:
    files = files_of(tmp_path, issuer)
    signing = files.signer
    issuer.answer = respond(jwks(signing))
    statuses: list[int] = []
    async with run_server(files, "--jwks-max-stale", "6s") as server:  # fetched three times in that
        await server.wait_for_metric('podgate_keys{source="url"}', 1)

        async def keep_calling() -> None:
            while True:
                statuses.append((await server.post("/nowhere", token=signing.token()))[0])
                await asyncio.sleep(0.1)

        callers = [asyncio.create_task(keep_calling()) for _ in range(4)]
        for _ in range(3):
            before, signing_next = signing, signer()
            issuer.answer = respond(jwks(before, signing_next))
            await server.wait_for_metric('podgate_keys{source="url"}', 2)
            signing = signing_next
            done = len(statuses)
            async with asyncio.timeout(HANG_SECONDS):
                while len(statuses) < done + 8:  # noqa: ASYNC110 - earlier tokens have been answered
                    await asyncio.sleep(0.01)
            issuer.answer = respond(jwks(signing))
            async with asyncio.timeout(HANG_SECONDS):
                while await server.metric('podgate_keys{source="url"}') != 1:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.05)
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert (await server.post("/nowhere", token=before.token()))[0] == 401
    assert len(statuses) > 24
    assert set(statuses) == {404}
