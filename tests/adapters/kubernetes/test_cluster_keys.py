"""The keys of the cluster's own issuer, as its API server publishes them, and their possible faults."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.harness.fake_apiserver import FakeApiServer, Fault, drop, fake_apiserver, refuse, say
from tests.harness.identity import jwks, signer
from tests.harness.server_process import Files, run_server
from webhook.adapters.kubernetes import ClusterKeys, connect
from webhook.adapters.kubernetes.cluster_keys import DISCOVERY, JWKS
from webhook.errors import UserError
from webhook.ports import KEY_SET_BYTES_MAX

ISSUER = "https://kubernetes.default.svc"
ONE = signer(issuer=ISSUER, subject="system:serviceaccount:podgate-system:caller")


@dataclass
class Published:
    """The API server's responses at the two paths."""

    fake: FakeApiServer
    discovery: Fault = field(
        default_factory=lambda: say(json.dumps({"issuer": ISSUER, "jwks_uri": "https://x/"}).encode())
    )
    keys: Fault = field(default_factory=lambda: say(jwks(ONE).encode()))

    def __post_init__(self) -> None:
        self.fake.always["get"] = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == JWKS and "application/jwk-set+json" not in request.headers["Accept"]:
            return await refuse(406, "Available representations: application/jwk-set+json")(request)
        answers = {DISCOVERY: self.discovery, JWKS: self.keys}
        return await answers.get(request.path, self.fake._get)(request)


@pytest.fixture
async def published(tmp_path: Path) -> AsyncIterator[Published]:
    async with fake_apiserver(tmp_path) as fake:
        yield Published(fake)


@pytest.fixture
async def client(published: Published, tmp_path: Path) -> AsyncIterator[Any]:
    assert published.fake.url
    async with await connect(tmp_path / "kubeconfig") as client:
        yield client


async def test_fetched_key_set_has_the_issuer_from_discovery(published: Published, client: Any) -> None:
    document = await ClusterKeys(client).fetch()
    assert (document.name, document.content.decode(), document.issuer) == (JWKS, jwks(ONE), ISSUER)
    assert [seen.path for seen in published.fake.seen] == [DISCOVERY, JWKS], "jwks_uri is not followed"


@pytest.mark.parametrize(
    ("discovery", "says"),
    [
        (refuse(403, "forbidden: User cannot get path"), "grant the right to get these two"),
        (refuse(404, "not found"), "HTTP 404"),
        (say(b"{}"), "missing required field `issuer`"),
        (say(b'{"issuer": 7}'), "Expected `str`"),
        (say(b'{"issuer": ""}'), "names no issuer"),
        (say(b"<html>"), "malformed"),
        (say(b" " * (KEY_SET_BYTES_MAX + 1)), "more than"),
        (drop, DISCOVERY),
    ],
)
async def test_fetch_fails_without_valid_discovery(
    published: Published, client: Any, discovery: Fault, says: str
) -> None:
    published.discovery = discovery
    with pytest.raises(UserError) as refused:
        await ClusterKeys(client).fetch()
    assert says in str(refused.value)
    assert str(refused.value).startswith(DISCOVERY)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (refuse(500, "boom"), "HTTP 500"),
        (say(b" " * (KEY_SET_BYTES_MAX + 1)), "more than"),
        (say(b'{"keys": [', cut=True), JWKS),
    ],
)
async def test_fetch_fails_without_a_complete_key_set(
    published: Published, client: Any, keys: Fault, says: str
) -> None:
    published.keys = keys
    with pytest.raises(UserError) as refused:
        await ClusterKeys(client).fetch()
    assert says in str(refused.value)


async def test_server_accepts_cluster_tokens_and_no_other_key_for_their_issuer(
    published: Published, tmp_path: Path
) -> None:
    assert published.fake.url
    files = Files.create(tmp_path)
    with (tmp_path / "identities.yaml").open("a") as identities:
        identities.write(
            "- {role: apiserver, certificate: {commonName: kube-apiserver}, audience: podgate,\n"
            f"   issuer: {ISSUER}, subject: 'system:serviceaccount:podgate-system:*'}}\n"
        )
    more = ("--cluster-keys", "true", "--kubeconfig", str(tmp_path / "kubeconfig"), "--store", "memory")
    forged = replace(files.signer, issuer=ISSUER, subject=ONE.subject)
    refused, good = 'podgate_refused_calls_total{reason="authentication_key_issuer"}', published.keys
    published.keys = refuse(503, "not now")
    async with run_server(files, *more) as server:
        for token in (forged.token(), files.signer.token()):
            assert await server.post("/nowhere", token=token) == (401, "unauthorized\n"), "the issuer has no keys yet"
        assert await server.metric(refused) == 2
        published.keys = good
        await server.wait_for_metric('podgate_keys{source="cluster"}', 1)
        assert (await server.post("/nowhere", token=ONE.token()))[0] == 404
        assert (await server.post("/nowhere"))[0] == 404, "the file's keys are valid beside them"
        assert await server.post("/nowhere", token=forged.token()) == (401, "unauthorized\n")
        assert await server.metric(refused) == 3
