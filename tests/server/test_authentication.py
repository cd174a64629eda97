import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from certs.tokens import certificate_binding
from tests.server.identity import IDENTITIES, Pki, Signer, der, jwks, segment, signer
from tests.server.loopback import Loopback, loopback, post
from webhook.adapters.jwks_file import JwksFile
from webhook.authentication import Authenticator, require_role
from webhook.errors import AuthenticationError, UserError
from webhook.identities import Role
from webhook.identity_file import parse_identities
from webhook.ports import Caller
from webhook.refusals import Refusal
from webhook.tls import server_context

APISERVER = signer()
PROBER = signer("RS256", issuer="prober", subject="prober-1")
STRANGER = signer()


@dataclass
class SetClock:
    """A clock that a test sets."""

    seconds: float

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(APISERVER, PROBER))
    return path


@pytest.fixture
def clock() -> SetClock:
    return SetClock(float(int(time.time())))


@pytest.fixture
def authenticator(key_file: Path, clock: SetClock) -> Authenticator:
    return Authenticator(parse_identities(IDENTITIES, "identities.yaml"), JwksFile(key_file), clock)


@dataclass
class Edge:
    """A server over real TLS that does nothing but authenticate; its refusals are those of the last call."""

    loopback: Loopback
    errors: list[AuthenticationError]
    pki: Pki

    async def call(self, client: Any, *headers: tuple[str, str]) -> tuple[int, str]:
        return await post(self.loopback.port, self.pki.context(client), *headers)


@pytest.fixture
async def edge(pki: Pki, key_file: Path) -> AsyncIterator[Edge]:
    authenticator = Authenticator(parse_identities(IDENTITIES, "identities.yaml"), JwksFile(key_file), SystemClock())
    errors: list[AuthenticationError] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        certificate = request.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            caller = authenticator.authenticate(certificate, request.headers.getall("Authorization", []))
            require_role(caller, Role.APISERVER)
        except AuthenticationError as error:
            errors.append(error)
            return web.Response(status=error.status)
        return web.Response(text=caller.client_id)

    context = server_context(pki.paths)
    async with loopback(handle, lambda: context) as running:
        yield Edge(running, errors, pki)


def bearer(token: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token}")


async def test_a_good_certificate_with_a_good_token_is_let_in(edge: Edge) -> None:
    assert await edge.call(edge.pki.client(), bearer(APISERVER.token())) == (200, "kube-apiserver")


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (lambda _pki, _other: None, "handshake_no_certificate"),
        (lambda _pki, other: other.client(), "handshake_certificate_foreign"),
        (lambda pki, _other: pki.client(server_only=True), "handshake_certificate_purpose"),
        (lambda pki, _other: pki.client(expired=True), "handshake_certificate_expired"),
    ],
    ids=["none", "another CA's", "a server's", "expired"],
)
async def test_a_bad_certificate_ends_the_handshake_even_with_a_good_token(
    edge: Edge, tmp_path_factory: pytest.TempPathFactory, client: Callable[[Pki, Pki], Any], reason: str
) -> None:
    other = Pki.create(tmp_path_factory.mktemp("other"))
    with pytest.raises(aiohttp.ClientError):
        await edge.call(client(edge.pki, other), bearer(APISERVER.token()))
    await edge.loopback.until(lambda: bool(edge.loopback.refused))
    assert edge.loopback.reasons == [reason]
    assert edge.loopback.kept == []


async def test_a_client_that_cannot_speak_tls_1_3_is_refused(edge: Edge) -> None:
    context = edge.pki.context(edge.pki.client())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(aiohttp.ClientError):
        await post(edge.loopback.port, context, bearer(APISERVER.token()))
    await edge.loopback.until(lambda: bool(edge.loopback.refused))
    assert edge.loopback.reasons == ["handshake_protocol"]


def good() -> dict[str, Any]:
    return APISERVER.claims()


def header(**changed: Any) -> dict[str, Any]:
    members = {"alg": "ES256", "typ": "JWT", "kid": APISERVER.jwk()["kid"], **changed}
    return {name: value for name, value in members.items() if value is not None}


def signed(head: Any, payload: Any, by: Signer = APISERVER) -> str:
    """Sign whatever one likes as header and payload, as PyJWT itself would refuse to."""
    unsigned = f"{segment(head)}.{segment(payload)}"
    algorithm = jwt.get_algorithm_by_name(by.algorithm)
    return f"{unsigned}.{segment(algorithm.sign(unsigned.encode(), by.key))}"


def public_pem() -> bytes:
    return APISERVER.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def hmac_with_the_public_key() -> str:
    unsigned = f"{segment(header(alg='HS256'))}.{segment(good())}"
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    return f"{unsigned}.{segment(algorithm.sign(unsigned.encode(), public_pem()))}"


def twice(name: str) -> bytes:
    """Return the good claims with one of them said twice, the good one last."""
    return b'{"' + name.encode() + b'": "x", ' + json.dumps(good()).encode()[1:]


def present() -> int:
    """Return the time of asking: a module may have been read long before its tests run."""
    return int(time.time())


R = Refusal
TOKENS: dict[str, tuple[Callable[[], str], Refusal]] = {
    "expired": (lambda: APISERVER.token(exp=present() - 60, iat=present() - 3600), R.EXPIRED),
    "wrong audience": (lambda: APISERVER.token(aud="vault"), R.AUDIENCE),
    "a second audience": (lambda: APISERVER.token(aud=["podgate", "vault"]), R.AUDIENCE),
    "no audience": (lambda: APISERVER.token(aud=None), R.CLAIMS),
    "an empty list of audiences": (lambda: APISERVER.token(aud=[]), R.CLAIMS),
    "an audience in a list in a list": (lambda: APISERVER.token(aud=[["podgate"]]), R.CLAIMS),
    "unknown issuer": (lambda: signed(header(), {**good(), "iss": "elsewhere"}), R.ISSUER),
    "no issuer": (lambda: APISERVER.token(iss=None), R.CLAIMS),
    "an issuer in a list": (lambda: signed(header(), {**good(), "iss": ["kube-apiserver"]}), R.CLAIMS),
    "no subject": (lambda: APISERVER.token(sub=None), R.CLAIMS),
    "alg none": (lambda: f"{segment(header(alg='none'))}.{segment(good())}.", R.TOKEN_MALFORMED),
    "alg none with a signature": (lambda: f"{segment(header(alg='none'))}.{segment(good())}.AAAA", R.ALGORITHM),
    "alg None": (lambda: f"{segment(header(alg='None'))}.{segment(good())}.AAAA", R.ALGORITHM),
    "no alg": (lambda: signed(header(alg=None), good()), R.ALGORITHM),
    "alg in a list": (lambda: signed(header(alg=["ES256"]), good()), R.ALGORITHM),
    "HS256 with the public key": (hmac_with_the_public_key, R.ALGORITHM),
    "an algorithm that the key is not bound to": (lambda: signed(header(alg="RS256"), good()), R.ALGORITHM),
    "PS256 where the key is bound to RS256": (
        lambda: signed(header(alg="PS256", kid=PROBER.jwk()["kid"]), good(), PROBER),
        R.ALGORITHM,
    ),
    "unknown kid": (STRANGER.token, R.UNKNOWN_KEY),
    "no kid": (lambda: signed(header(kid=None), good()), R.UNKNOWN_KEY),
    "a number as kid": (lambda: signed(header(kid=7), good()), R.UNKNOWN_KEY),
    "a path as kid": (lambda: signed(header(kid="../../dev/null\0"), good()), R.UNKNOWN_KEY),
    "another's signature": (lambda: signed(header(), good(), STRANGER), R.SIGNATURE),
    "a truncated signature": (lambda: _cut_signature(APISERVER.token()), R.SIGNATURE),
    "a signature of zeros": (lambda: f"{segment(header())}.{segment(good())}.{segment(bytes(64))}", R.SIGNATURE),
    "an altered claim": (
        lambda: f"{segment(header())}.{segment({**good(), 'sub': 'x'})}.{APISERVER.token().split('.')[2]}",
        R.SIGNATURE,
    ),
    "a key in the header (jwk)": (lambda: signed(header(jwk=STRANGER.jwk()), good(), STRANGER), R.HEADER),
    "a key's address in the header (jku)": (lambda: signed(header(jku="https://x/"), good()), R.HEADER),
    "a certificate in the header (x5c)": (lambda: signed(header(x5c=["AAAA"]), good()), R.HEADER),
    "a certificate's address in the header (x5u)": (lambda: signed(header(x5u="https://x/"), good()), R.HEADER),
    "crit": (lambda: signed(header(crit=["b64"], b64=True), good()), R.HEADER),
    "b64": (lambda: signed(header(b64=False), good()), R.HEADER),
    "a token of another type": (lambda: signed(header(typ="logout+jwt"), good()), R.HEADER),
    "a duplicate key in the header": (
        lambda: signed(json.dumps(header()).encode()[:-1] + b', "alg": "ES256"}', good()),
        R.TOKEN_MALFORMED,
    ),
    "a header that is a list": (lambda: signed([], good()), R.TOKEN_MALFORMED),
    "a header too long": (lambda: signed(header(kid="k" * 1100), good()), R.TOKEN_MALFORMED),
    "a deeply nested header": (lambda: signed(b"[" * 1000, good()), R.TOKEN_MALFORMED),
    "missing exp": (lambda: APISERVER.token(exp=None), R.CLAIMS),
    "missing iat": (lambda: APISERVER.token(iat=None), R.CLAIMS),
    "exp as a string": (lambda: APISERVER.token(exp=str(present() + 600)), R.CLAIMS),
    "exp as a fraction": (lambda: APISERVER.token(exp=present() + 600.5), R.CLAIMS),
    "exp 1e308": (lambda: APISERVER.token(exp=1e308), R.CLAIMS),
    "exp true": (lambda: APISERVER.token(exp=True), R.CLAIMS),
    "exp of 4000 digits": (lambda: APISERVER.token(exp=10**3999), R.CLAIMS),
    "infinite exp": (lambda: signed(header(), b'{"exp": Infinity}'), R.CLAIMS),
    "future iat": (lambda: APISERVER.token(iat=present() + 600), R.NOT_YET_VALID),
    "future nbf": (lambda: APISERVER.token(nbf=present() + 600), R.NOT_YET_VALID),
    "nbf as a string": (lambda: APISERVER.token(nbf="0"), R.CLAIMS),
    "a year of life": (lambda: APISERVER.token(exp=present() + 365 * 86_400), R.LIFETIME),
    "exp before iat": (lambda: APISERVER.token(exp=(now := present()), iat=now + 1), R.LIFETIME),
    "duplicate claims": (lambda: signed(header(), twice("sub")), R.CLAIMS),
    "a lone surrogate": (lambda: signed(header(), b'{"x": "\\ud800", ' + json.dumps(good()).encode()[1:]), R.CLAIMS),
    "claims in UTF-16": (lambda: signed(header(), json.dumps(good()).encode("utf-16")), R.CLAIMS),
    "claims that are a list": (lambda: signed(header(), [good()]), R.CLAIMS),
    "claims that are no JSON": (lambda: signed(header(), b"x"), R.CLAIMS),
    "too long": (lambda: APISERVER.token(padding="x" * 8192), R.TOKEN_MALFORMED),
    "two segments": (lambda: APISERVER.token().rsplit(".", 1)[0], R.TOKEN_MALFORMED),
    "five segments (JWE)": (lambda: "a.b.c.d.e", R.TOKEN_MALFORMED),
    "padding": (lambda: APISERVER.token() + "==", R.TOKEN_MALFORMED),
    "the standard alphabet": (lambda: "+/+/." + APISERVER.token().split(".", 1)[1], R.TOKEN_MALFORMED),
    "a stray bit": (lambda: _stray_bit(APISERVER.token()), R.TOKEN_MALFORMED),
    "a space inside": (lambda: APISERVER.token() + " x", R.TOKEN_MALFORMED),
}


def _cut_signature(token: str) -> str:
    unsigned, _, signature = token.rpartition(".")
    return f"{unsigned}.{segment(base64.urlsafe_b64decode(signature + '==')[:-3])}"


def _stray_bit(token: str) -> str:
    """Return another spelling of the same signature: 64 bytes leave four unused bits in the last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) + 1]


@pytest.mark.parametrize("name", TOKENS)
async def test_a_bad_token_is_a_401_for_its_own_reason(edge: Edge, name: str) -> None:
    make, reason = TOKENS[name]
    assert await edge.call(edge.pki.client(), bearer(make())) == (401, "")
    assert [(error.reason, error.status) for error in edge.errors] == [(reason, 401)], edge.errors


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], R.NO_TOKEN),
        ([("Authorization", "")], R.NO_TOKEN),
        ([("Authorization", "Bearer ")], R.NO_TOKEN),
        ([("Authorization", "Basic eDp5")], R.NO_TOKEN),
        ([("Authorization", "Token {good}")], R.NO_TOKEN),
        ([("Authorization", "Bearer {good}"), ("Authorization", "Bearer {good}")], R.SEVERAL_TOKENS),
        ([("Authorization", "Bearer {good}, Bearer {good}")], R.TOKEN_MALFORMED),
    ],
)
async def test_anything_but_one_bearer_token_is_a_401(
    edge: Edge, headers: list[tuple[str, str]], reason: Refusal
) -> None:
    sent = [(name, value.format(good=APISERVER.token())) for name, value in headers]
    status, _ = await edge.call(edge.pki.client(), *sent)
    assert (status, [error.reason for error in edge.errors]) == (401, [reason])


async def test_the_scheme_is_read_in_any_case(edge: Edge) -> None:
    status, _ = await edge.call(edge.pki.client(), ("Authorization", f"bearer {APISERVER.token()}"))
    assert status == 200


async def test_the_one_audience_may_stand_in_a_list_as_kubernetes_writes_it(edge: Edge) -> None:
    claims = {**good(), "aud": ["podgate"], "nbf": present(), "kubernetes.io": {"namespace": "a", "serviceaccount": {}}}
    assert (await edge.call(edge.pki.client(), bearer(signed(header(typ=None), claims))))[0] == 200


@pytest.mark.parametrize(
    ("common_name", "by"),
    [("kube-apiserver", PROBER), ("prober", APISERVER), ("nobody", APISERVER), ("KUBE-APISERVER", APISERVER)],
)
async def test_somebody_elses_good_token_is_a_403(edge: Edge, common_name: str, by: Signer) -> None:
    token = by.token(client_id="c")
    assert await edge.call(edge.pki.client(common_name), bearer(token)) == (403, "")
    assert [error.reason for error in edge.errors] == [R.IDENTITY_MISMATCH]


async def test_a_known_caller_on_a_route_of_another_role_is_a_403(edge: Edge) -> None:
    assert await edge.call(edge.pki.client("prober"), bearer(PROBER.token(client_id="c"))) == (403, "")
    assert [error.reason for error in edge.errors] == [R.ROLE]


async def test_a_token_bound_to_a_certificate_is_good_with_that_one_only(edge: Edge) -> None:
    mine, other = edge.pki.client(), edge.pki.client()
    token = APISERVER.token(cnf=certificate_binding(mine.certificate))
    assert (await edge.call(mine, bearer(token)))[0] == 200
    assert (await edge.call(other, bearer(token)))[0] == 403
    assert [error.reason for error in edge.errors] == [R.BINDING]


@pytest.mark.parametrize("cnf", [{}, {"jkt": "x"}, {"x5t#S256": 7}, {"x5t#S256": "é"}, "x", None])
def test_a_binding_that_cannot_be_checked_is_not_met(authenticator: Authenticator, pki: Pki, cnf: Any) -> None:
    token = signed(header(), {**good(), "cnf": cnf})
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(der(pki.client()), [f"Bearer {token}"])
    assert refused.value.reason == R.BINDING


def test_a_binding_may_be_required(pki: Pki, key_file: Path, clock: SetClock) -> None:
    identities = parse_identities(IDENTITIES, "identities.yaml")
    strict = Authenticator(identities, JwksFile(key_file), clock, binding_required=True)
    client = pki.client()
    with pytest.raises(AuthenticationError, match="bound to no certificate"):
        strict.authenticate(der(client), [f"Bearer {APISERVER.token()}"])
    bound = APISERVER.token(cnf=certificate_binding(client.certificate))
    assert strict.authenticate(der(client), [f"Bearer {bound}"]).role == "apiserver"


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_every_accepted_algorithm_is_verified(pki: Pki, tmp_path: Path, clock: SetClock, algorithm: str) -> None:
    issuer = signer(algorithm)
    path = tmp_path / "keys.json"
    path.write_text(jwks(issuer))
    authenticator = Authenticator(parse_identities(IDENTITIES, "i"), JwksFile(path), clock)
    caller = authenticator.authenticate(der(pki.client()), [f"Bearer {issuer.token()}"])
    assert caller == Caller("apiserver", "kube-apiserver", "kube-apiserver", "kube-apiserver", "kube-apiserver")


def test_a_verified_token_is_not_believed_after_its_exp(
    authenticator: Authenticator, pki: Pki, clock: SetClock
) -> None:
    certificate, header_value = (
        der(pki.client()),
        [f"Bearer {APISERVER.token(clock.seconds, exp=int(clock.seconds) + 20)}"],
    )
    assert authenticator.authenticate(certificate, header_value).role == "apiserver"
    clock.seconds += 40
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(certificate, header_value)
    assert refused.value.reason == R.EXPIRED


def test_a_verified_token_is_not_believed_once_its_key_is_gone(pki: Pki, key_file: Path, clock: SetClock) -> None:
    keys = JwksFile(key_file)
    authenticator = Authenticator(parse_identities(IDENTITIES, "i"), keys, clock)
    certificate, header_value = der(pki.client()), [f"Bearer {APISERVER.token()}"]
    assert authenticator.authenticate(certificate, header_value).role == "apiserver"
    key_file.write_text(jwks(PROBER))
    keys.reload()
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(certificate, header_value)
    assert refused.value.reason == R.UNKNOWN_KEY


def test_a_verified_token_is_verified_only_once(
    authenticator: Authenticator, pki: Pki, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    decode = jwt.PyJWS.decode

    def counting(jws: jwt.PyJWS, token: str, *args: Any, **named: Any) -> Any:
        verified.append(token)
        return decode(jws, token, *args, **named)

    monkeypatch.setattr(jwt.PyJWS, "decode", counting)
    certificate, header_value = der(pki.client()), [f"Bearer {APISERVER.token()}"]
    for _ in range(3):
        authenticator.authenticate(certificate, header_value)
    assert len(verified) == 1
    clock.seconds += 61
    authenticator.authenticate(certificate, header_value)
    assert len(verified) == 2


def test_what_is_remembered_is_bounded(authenticator: Authenticator, pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.authentication._CACHED_TOKENS_MAX", 3)
    monkeypatch.setattr("webhook.authentication._CACHED_CERTIFICATES_MAX", 2)
    for number in range(6):
        authenticator.authenticate(der(pki.client()), [f"Bearer {APISERVER.token(jti=str(number))}"])
    assert len(authenticator._verified) == 3
    assert len(authenticator._certificates) == 2


def test_a_certificate_that_expires_while_its_connection_is_open_is_refused(
    authenticator: Authenticator, pki: Pki, clock: SetClock
) -> None:
    certificate = der(pki.client())
    clock.seconds += 86_400 + 1
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(certificate, [f"Bearer {APISERVER.token(clock.seconds)}"])
    assert refused.value.reason == R.CERTIFICATE_EXPIRED


def test_a_connection_without_a_certificate_is_refused_here_too(authenticator: Authenticator) -> None:
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(None, [f"Bearer {APISERVER.token()}"])
    assert refused.value.reason == R.NO_CERTIFICATE


def test_clock_skew_is_forgiven_up_to_the_leeway_and_no_leeway_is_large(
    authenticator: Authenticator, pki: Pki, clock: SetClock, key_file: Path
) -> None:
    ahead = APISERVER.token(clock.seconds + 10)
    assert authenticator.authenticate(der(pki.client()), [f"Bearer {ahead}"]).role == "apiserver"
    with pytest.raises(AuthenticationError, match="future"):
        authenticator.authenticate(der(pki.client()), [f"Bearer {APISERVER.token(clock.seconds + 11)}"])
    with pytest.raises(UserError, match="leeway"):
        Authenticator(parse_identities(IDENTITIES, "i"), JwksFile(key_file), clock, token_leeway_seconds=31)
