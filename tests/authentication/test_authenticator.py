"""The authenticator: a certificate and a token identify one caller."""

import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.token_issuer import build_binding
from tests.core.strategies import examples
from tests.harness.identity import Pki, Signer, der, identities, jwks, segment, signer
from tests.harness.loopback import Loopback, loopback, post
from webhook.authentication.authenticator import Authenticator, TokenLimits, require_role
from webhook.authentication.identities import Role
from webhook.authentication.jwks_file import JwksFile
from webhook.authentication.jwt import Binding
from webhook.authentication.published_keys import JwksUnion
from webhook.authentication.reasons import AuthFailure
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Caller
from webhook.server.http_messages import HttpRequest, HttpResponse
from webhook.tls.context import make_server_context

APISERVER = signer()
PROBER = signer("RS256", issuer="prober", subject="prober-1")
STRANGER = signer()


@dataclass
class SetClock:
    """A clock that a test sets."""

    seconds: float

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)


class Revocations:
    """Denials of all tokens, or of none."""

    all = False

    def is_revoked(self, _issuer: str, _jti: str, _now_us: int) -> bool:
        return self.all


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki.create(tmp_path)


@pytest.fixture(scope="module")
def one_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.create(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(APISERVER, PROBER))
    return path


def key_union(path: Path) -> JwksUnion:
    return JwksUnion([JwksFile(path)])


@pytest.fixture
def clock() -> SetClock:
    return SetClock(float(int(time.time())))


@pytest.fixture
def authenticator(key_file: Path, clock: SetClock) -> Authenticator:
    return Authenticator(identities(), key_union(key_file), clock)


@dataclass
class AuthenticatingServer:
    """A TLS server that only authenticates, and records its errors."""

    loopback: Loopback
    errors: list[AuthenticationError]
    pki: Pki

    async def call(self, client: Any, *headers: tuple[str, str]) -> tuple[int, str]:
        return await post(self.loopback.port, self.pki.context(client), *headers)


@pytest.fixture
async def server(pki: Pki, key_file: Path) -> AsyncIterator[AuthenticatingServer]:
    authenticator = Authenticator(identities(), key_union(key_file), SystemClock())
    errors: list[AuthenticationError] = []

    async def handle(request: HttpRequest) -> HttpResponse:
        certificate = request.peer.certificate_der
        try:
            caller = authenticator.authenticate(certificate, request.headers.getall("Authorization", []))
            require_role(caller, Role.APISERVER)
        except AuthenticationError as error:
            errors.append(error)
            return HttpResponse(error.status, b"")
        return HttpResponse(200, caller.client_id.encode())

    context = make_server_context(pki.paths)
    async with loopback(handle, lambda: context) as running:
        yield AuthenticatingServer(running, errors, pki)


def bearer(token: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token}")


async def test_a_good_certificate_with_a_good_token_is_admitted(server: AuthenticatingServer) -> None:
    assert await server.call(server.pki.client(), bearer(APISERVER.token())) == (200, "kube-apiserver")


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
    server: AuthenticatingServer,
    tmp_path_factory: pytest.TempPathFactory,
    client: Callable[[Pki, Pki], Any],
    reason: str,
) -> None:
    other = Pki.create(tmp_path_factory.mktemp("other"))
    with pytest.raises(aiohttp.ClientError):
        await server.call(client(server.pki, other), bearer(APISERVER.token()))
    await server.loopback.wait_until(lambda: bool(server.loopback.refused))
    assert server.loopback.reasons == [reason]
    assert server.loopback.kept == []


async def test_a_client_that_cannot_speak_tls_1_3_is_refused(server: AuthenticatingServer) -> None:
    context = server.pki.context(server.pki.client())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(aiohttp.ClientError):
        await post(server.loopback.port, context, bearer(APISERVER.token()))
    await server.loopback.wait_until(lambda: bool(server.loopback.refused))
    assert server.loopback.reasons == ["handshake_protocol"]


def good_claims() -> dict[str, Any]:
    return APISERVER.claims()


def header(**changed: Any) -> dict[str, Any]:
    members = {"alg": "ES256", "typ": "JWT", "kid": APISERVER.jwk()["kid"], **changed}
    return {name: value for name, value in members.items() if value is not None}


def sign_parts(head: Any, payload: Any, issuer: Signer = APISERVER) -> str:
    """Sign any header and payload, also those that PyJWT refuses."""
    unsigned = f"{segment(head)}.{segment(payload)}"
    algorithm = jwt.get_algorithm_by_name(issuer.algorithm)
    return f"{unsigned}.{segment(algorithm.sign(unsigned.encode(), issuer.key))}"


R = AuthFailure


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
    server: AuthenticatingServer, headers: list[tuple[str, str]], reason: AuthFailure
) -> None:
    sent = [(name, value.format(good=APISERVER.token())) for name, value in headers]
    status, _ = await server.call(server.pki.client(), *sent)
    assert (status, [error.reason for error in server.errors]) == (401, [reason])


async def test_the_scheme_is_read_in_any_case(server: AuthenticatingServer) -> None:
    status, _ = await server.call(server.pki.client(), ("Authorization", f"bearer {APISERVER.token()}"))
    assert status == 200


async def test_audience_may_be_a_list_with_one_entry(server: AuthenticatingServer) -> None:
    claims = {
        **good_claims(),
        "aud": ["podgate"],
        "nbf": int(time.time()),
        "kubernetes.io": {"namespace": "a", "serviceaccount": {}},
    }
    assert (await server.call(server.pki.client(), bearer(sign_parts(header(typ=None), claims))))[0] == 200


@pytest.mark.parametrize(
    ("common_name", "issuer"),
    [("kube-apiserver", PROBER), ("prober", APISERVER), ("nobody", APISERVER), ("KUBE-APISERVER", APISERVER)],
)
async def test_valid_token_of_another_identity_is_a_403(
    server: AuthenticatingServer, common_name: str, issuer: Signer
) -> None:
    token = issuer.token(client_id="c")
    assert await server.call(server.pki.client(common_name), bearer(token)) == (403, "")
    assert [error.reason for error in server.errors] == [R.IDENTITY_MISMATCH]


async def test_a_known_caller_on_a_route_of_another_role_is_a_403(server: AuthenticatingServer) -> None:
    assert await server.call(server.pki.client("prober"), bearer(PROBER.token(client_id="c"))) == (403, "")
    assert [error.reason for error in server.errors] == [R.ROLE]


async def test_bound_token_is_accepted_with_its_certificate_only(server: AuthenticatingServer) -> None:
    own_client, other = server.pki.client(), server.pki.client()
    token = APISERVER.token(cnf=build_binding(own_client.certificate))
    assert (await server.call(own_client, bearer(token)))[0] == 200
    assert (await server.call(other, bearer(token)))[0] == 403
    assert [error.reason for error in server.errors] == [R.BINDING]


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256", "EdDSA"])
def test_every_accepted_algorithm_is_verified(pki: Pki, tmp_path: Path, clock: SetClock, algorithm: str) -> None:
    issuer = signer(algorithm)
    path = tmp_path / "keys.json"
    path.write_text(jwks(issuer))
    authenticator = Authenticator(identities(), key_union(path), clock)
    client, now = pki.client(), time.time()
    caller = authenticator.authenticate(der(client), [f"Bearer {issuer.token(now)}"])
    expiry = int(now) + 3600, int(client.certificate.not_valid_after_utc.timestamp())
    assert caller == Caller("apiserver", *["kube-apiserver"] * 4, *expiry)


def test_a_verified_token_is_not_accepted_after_its_exp(
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


def test_a_verified_token_is_not_accepted_once_its_key_is_gone(pki: Pki, key_file: Path, clock: SetClock) -> None:
    keys = JwksFile(key_file)
    authenticator = Authenticator(identities(), JwksUnion([keys]), clock)
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
    verified = record_verifications(monkeypatch)
    certificate, header_value = der(pki.client()), [f"Bearer {APISERVER.token()}"]
    for _ in range(3):
        authenticator.authenticate(certificate, header_value)
    assert len(verified) == 1
    clock.seconds += 61
    authenticator.authenticate(certificate, header_value)
    assert len(verified) == 2


def record_verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each token that is verified instead of taken from the cache."""
    verified: list[str] = []
    decode = jwt.PyJWS.decode

    def record_and_decode(jws: jwt.PyJWS, token: str, *args: Any, **keywords: Any) -> Any:
        verified.append(token)
        return decode(jws, token, *args, **keywords)

    monkeypatch.setattr(jwt.PyJWS, "decode", record_and_decode)
    return verified


def make_header(number: int) -> list[str]:
    return [f"Bearer {APISERVER.token(jti=str(number))}"]


def test_remembered_tokens_are_bounded(authenticator: Authenticator, pki: Pki) -> None:
    own_certificate = der(pki.client())
    for number in range(40):
        authenticator.authenticate(own_certificate, make_header(number))
    [holder] = authenticator._holders.values()
    assert len(holder.verified) == 32
    for _ in range(520):
        authenticator.authenticate(der(pki.client()), make_header(0))
    assert len(authenticator._holders) == 512


def test_valid_tokens_of_other_certificates_evict_no_cached_token_of_a_caller(
    authenticator: Authenticator, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_certificate, token, other = der(pki.client()), make_header(0), der(pki.client())
    authenticator.authenticate(own_certificate, token)
    for number in range(100):
        authenticator.authenticate(other, make_header(number))
    verified = record_verifications(monkeypatch)
    authenticator.authenticate(own_certificate, token)
    assert verified == []


def test_valid_tokens_of_one_certificate_evict_no_cached_token_in_use(
    authenticator: Authenticator, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_certificate, token = der(pki.client()), make_header(0)
    verified = record_verifications(monkeypatch)
    authenticator.authenticate(own_certificate, token)
    for number in range(1, 100):
        authenticator.authenticate(own_certificate, make_header(number))
        if number % 20 == 0:
            authenticator.authenticate(own_certificate, token)
    assert [f"Bearer {text}" for text in verified].count(token[0]) == 1


def test_rejected_tokens_are_never_cached(authenticator: Authenticator, pki: Pki) -> None:
    own_certificate = der(pki.client())
    authenticator.authenticate(own_certificate, make_header(0))
    for number in range(100):
        with pytest.raises(AuthenticationError):
            authenticator.authenticate(own_certificate, [f"Bearer {STRANGER.token(jti=str(number))}"])
    [holder] = authenticator._holders.values()
    assert len(holder.verified) == 1


def test_clock_that_is_set_back_does_not_prolong_a_verified_token(
    authenticator: Authenticator, pki: Pki, clock: SetClock
) -> None:
    own_certificate, token = der(pki.client()), [f"Bearer {APISERVER.token(clock.seconds)}"]
    authenticator.authenticate(own_certificate, token)
    clock.seconds -= 3600
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(own_certificate, token)
    assert refused.value.reason == R.NOT_YET_VALID


def test_token_is_verified_only_once_between_its_exp_and_the_end_of_the_leeway(
    authenticator: Authenticator, pki: Pki, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_certificate, token = (
        der(pki.client()),
        [f"Bearer {APISERVER.token(clock.seconds - 10, exp=int(clock.seconds))}"],
    )
    verified = record_verifications(monkeypatch)
    for _ in range(3):
        authenticator.authenticate(own_certificate, token)
        clock.seconds += 3
    assert len(verified) == 1


@pytest.mark.parametrize(
    ("binding", "cnf", "reason"),
    [
        (Binding.OFF, None, None),
        (Binding.OFF, "mine", None),
        (Binding.OFF, "another's", None),
        (Binding.IF_PRESENT, None, None),
        (Binding.IF_PRESENT, "mine", None),
        (Binding.IF_PRESENT, "another's", R.BINDING),
        (Binding.REQUIRED, None, R.BINDING),
        (Binding.REQUIRED, "mine", None),
        (Binding.REQUIRED, "another's", R.BINDING),
    ],
)
def test_a_binding_is_checked_as_the_mode_says(
    pki: Pki, key_file: Path, clock: SetClock, binding: Binding, cnf: str | None, reason: AuthFailure | None
) -> None:
    authenticator = Authenticator(identities(), key_union(key_file), clock, TokenLimits(binding=binding))
    own_client = pki.client()
    bound_to = {"mine": own_client, "another's": pki.client()}.get(cnf or "")
    token = APISERVER.token(cnf=build_binding(bound_to.certificate) if bound_to else None)
    if reason is None:
        assert authenticator.authenticate(der(own_client), [f"Bearer {token}"]).role == "apiserver"
    else:
        with pytest.raises(AuthenticationError) as refused:
            authenticator.authenticate(der(own_client), [f"Bearer {token}"])
        assert (refused.value.reason, refused.value.status) == (reason, 403)


def test_a_verified_token_is_not_accepted_once_its_identity_is_gone(pki: Pki, key_file: Path, clock: SetClock) -> None:
    identity_file = identities()
    authenticator = Authenticator(identity_file, key_union(key_file), clock)
    own_certificate, token = der(pki.client()), make_header(0)
    assert authenticator.authenticate(own_certificate, token).client_id == "kube-apiserver"
    identity_file.set(replace(identity_file.value, callers=identity_file.value.callers[1:]))
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(own_certificate, token)
    assert refused.value.reason == R.ISSUER


def test_a_certificate_that_expires_while_its_connection_is_open_is_refused(
    authenticator: Authenticator, pki: Pki, clock: SetClock
) -> None:
    certificate = der(pki.client())
    clock.seconds += 86_400 + 1
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(certificate, [f"Bearer {APISERVER.token(clock.seconds)}"])
    assert refused.value.reason == R.CERTIFICATE_EXPIRED


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.sampled_from([-1, 0, 1, 29, 30, 59, 60, 61, 3600, 86_401])),
        st.tuples(st.sampled_from(["keys", "identities", "denial"]), st.booleans()),
    ),
    max_size=5,
)


@examples(100)
@given(CHANGES, st.sampled_from([20, 45, 3600, 86_400]))
def test_what_still_holds_is_what_would_be_verified(
    one_pki: Pki, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, Any]], lifetime_seconds: int
) -> None:
    """Both ways: a call is remembered as long as nothing has changed, and not a moment longer."""
    key_file = tmp_path_factory.mktemp("keys") / "jwks.json"
    key_file.write_text(jwks(APISERVER, PROBER))
    keys, identity_file, clock = JwksFile(key_file), identities(), SetClock(float(int(time.time())))
    everyone, denied = identity_file.value, Revocations()
    authenticator = Authenticator(identity_file, JwksUnion([keys]), clock, TokenLimits(leeway_seconds=5), denied)
    expires_at = int(clock.seconds) + lifetime_seconds
    call = der(one_pki.client()), [f"Bearer {APISERVER.token(clock.seconds, exp=expires_at, jti='1')}"]
    newest = authenticator.identify(*call)
    for kind, value in changes:
        match kind:
            case "time":
                clock.seconds += value
            case "keys":
                key_file.write_text(jwks(APISERVER, PROBER) if value else jwks(PROBER))
                keys.reload()
            case "identities":
                identity_file.set(everyone if value else replace(everyone, callers=everyone.callers[1:]))
            case _:
                denied.all = value
        still_holds = authenticator.still_holds(newest)
        try:
            again = authenticator.identify(*call)
        except AuthenticationError:
            assert not still_holds
            continue
        assert again.caller == newest.caller
        assert (again is newest) == still_holds
        newest = again


def test_connection_without_a_certificate_is_rejected(authenticator: Authenticator) -> None:
    with pytest.raises(AuthenticationError) as refused:
        authenticator.authenticate(None, [f"Bearer {APISERVER.token()}"])
    assert refused.value.reason == R.NO_CERTIFICATE


def test_clock_skew_is_forgiven_up_to_the_leeway_and_no_leeway_is_large(
    authenticator: Authenticator, pki: Pki, clock: SetClock
) -> None:
    ahead = APISERVER.token(clock.seconds + 10)
    assert authenticator.authenticate(der(pki.client()), [f"Bearer {ahead}"]).role == "apiserver"
    with pytest.raises(AuthenticationError, match="future"):
        authenticator.authenticate(der(pki.client()), [f"Bearer {APISERVER.token(clock.seconds + 11)}"])
    with pytest.raises(UserError, match="leeway"):
        TokenLimits(leeway_seconds=31)
