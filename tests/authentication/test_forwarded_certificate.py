"""Certificates forwarded by a proxy: parsed strictly, verified again, and accepted from listed proxies only."""

import base64
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from certs.authority import Authority, KeyPair
from certs.token_issuer import build_binding
from tests.harness.identity import AUDIENCE, IDENTITIES, ISSUER, SUBJECT, der, make_unreadable
from tests.harness.proxied_server import (
    BEHIND_A_PROXY,
    HEADER,
    PROXY,
    Forwarding,
    digest,
    encode,
    format_forwarded,
    pem,
)
from tests.harness.raw_http import BODY, eventually, format_length, head, line, status
from tests.harness.rsa_keys import rsa_key
from tests.harness.server_process import run_server
from webhook.authentication.authenticator import Authenticator
from webhook.authentication.chain_verifier import ClientChainVerifier, ForeignCertificateError
from webhook.authentication.forwarded_certificate import ForwardedCaFile, ForwardedCertificateStrategy
from webhook.authentication.identity_file import IdentityFile
from webhook.authentication.jwks_file import JwksFile
from webhook.authentication.published_keys import JwksUnion
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.xfcc import HEADER_BYTES_MAX, parse_forwarded_certificate
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Caller

EDWARDS = (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)
"""Keys whose signatures include the hash."""

AUTHORITY = Authority.create("callers")
CALLER = AUTHORITY.issue_client("kube-apiserver")
OTHER = AUTHORITY.issue_client("somebody-else")
ENCODED = encode(pem(CALLER))
GOOD = format_forwarded(CALLER)
HASH = f"Hash={digest(CALLER)}"
CERT = f'Cert="{ENCODED}"'
BASE64 = base64.b64encode(der(CALLER)).decode()


def format_header(body: str, begin: str = "CERTIFICATE", end: str = "CERTIFICATE") -> str:
    text = f"-----BEGIN {begin}-----\n{body}\n-----END {end}-----\n"
    return f'Cert="{encode(text)}"'


@pytest.mark.parametrize(
    "header",
    [
        GOOD,
        CERT,
        f"{CERT};{HASH}",
        f"Cert={ENCODED}",
        f"cert={ENCODED};HASH={digest(CALLER)}",
        f'Hash="{digest(CALLER)}";{CERT}',
        f'By=spiffe://a/b;{HASH};{CERT};Subject="O=a,CN=b;c=d";URI=spiffe://a/b;URI=spiffe://a/c;DNS=one;DNS=two',
        f"By=spiffe://a/b;By=spiffe://a/c;{CERT}",
        f'{CERT};Subject=""',
        f'Subject="Cert={encode(pem(OTHER))}";{CERT}',
        CERT.replace("%0A", "%0a").replace("%2B", "%2b"),
        CERT.replace("%20", " "),
        CERT.replace("%2B", "+").replace("%2F", "/").replace("%3D", "="),
        f'Cert="{encode(pem(CALLER).rstrip())}"',
        format_header(BASE64),
    ],
)
def test_header_formats_of_proxies_are_read(header: str) -> None:
    assert parse_forwarded_certificate([header]) == der(CALLER)


def double(text: str) -> str:
    return f"{text};{text}"


MALFORMED = {
    # duplicates
    "two headers": [GOOD, GOOD],
    "two headers, the second empty": [GOOD, ""],
    "two headers of two callers": [GOOD, format_forwarded(OTHER)],
    "two elements": [f"{GOOD},{GOOD}"],
    "two elements, a caller's own first": [f"{format_forwarded(OTHER)},{GOOD}"],
    "an empty element after it": [f"{GOOD},"],
    "an empty element before it": [f",{GOOD}"],
    "two elements with a space": [f"{GOOD}, {GOOD}"],
    "Cert twice": [double(CERT)],
    "Cert of two callers": [f'{CERT};Cert="{encode(pem(OTHER))}"'],
    "Cert twice, in two cases": [f"{CERT};{CERT.lower().replace(ENCODED.lower(), ENCODED)}"],
    "Hash twice": [f"{double(HASH)};{CERT}"],
    "Subject twice": [f"Subject=a;Subject=b;{CERT}"],
    # content
    "nothing": [""],
    "a space": [" "],
    "Hash alone": [HASH],
    "a Subject alone": ['Subject="CN=kube-apiserver"'],
    "URI alone": ["URI=spiffe://cluster/kube-apiserver"],
    "By alone": ["By=spiffe://cluster/edge-proxy"],
    "an empty Cert": ["Cert="],
    "an empty Cert in quotes": ['Cert=""'],
    "Chain in place of Cert": [f'Chain="{ENCODED}"'],
    "Chain beside Cert": [f'{GOOD};Chain="{ENCODED}"'],
    "an unknown key": [f"{GOOD};Admin=true"],
    # the grammar
    "unterminated quotes": [GOOD[:-1]],
    "a quote that opens in the value": [f'Cert=a"{ENCODED}"'],
    "text after the quotes": [f"{GOOD}x"],
    "a key without a value": [f"{GOOD};Hash"],
    "a value without a key": [f"{GOOD};=x"],
    "a semicolon at the end": [f"{GOOD};"],
    "two semicolons": [f"{HASH};;{CERT}"],
    "a space after the semicolon": [f"{HASH}; {CERT}"],
    "a space before it all": [f" {GOOD}"],
    "an equals sign in a plain value": [f"By=a=b;{CERT}"],
    "an escaped quote": [f'Subject="a\\"b";{CERT}'],
    "an escaped quote that another reader takes for the end": [f'Subject="a\\\\";{CERT};By="x";{HASH}'],
    "an escape at the end": [f'{CERT};Subject="a\\'],
    "single quotes": [f"Cert='{ENCODED}'"],
    "NUL": [f"{GOOD}\0"],
    "NUL within Cert": [GOOD.replace("%0A", "\0", 1)],
    "a tab": [f"{HASH};\t{CERT}"],
    "a line feed": [f"{GOOD}\n"],
    "non-ASCII": [f"By=ä;{GOOD}"],
    "a key in other letters that look the same": [GOOD.replace("Cert", "Сert")],  # noqa: RUF001 - the fault
    "a byte that is no character": [f"{GOOD};By=\udcff"],
    "huge": [f"By={'x' * HEADER_BYTES_MAX};{CERT}"],
    "a thousand pairs": [f"{'By=a;' * 4_000}{CERT}"],
    # the encoding
    "percent at the end": [f'Cert="{ENCODED}%"'],
    "percent and one digit": [f'Cert="{ENCODED}%0"'],
    "percent and no hexadecimal": [f'Cert="{ENCODED}%GG"'],
    "percent and u": [f'Cert="{ENCODED}%u000a"'],
    "encoded twice": [f'Cert="{encode(ENCODED)}"'],
    "encoded NUL at the end": [f'Cert="{ENCODED}%00"'],
    "encoded non-ASCII": [f'Cert="{ENCODED}%C3%A4"'],
    "encoded overlong": [f'Cert="{ENCODED.replace("%0A", "%C0%8A")}"'],
    "carriage returns": [f'Cert="{ENCODED.replace("%0A", "%0D%0A")}"'],
    "plus for space": [f'Cert="{ENCODED.replace("%20", "+")}"'],
    "quotes, encoded": [f"Cert=%22{ENCODED}%22"],
    # the PEM
    "no PEM at all": [f"Cert={base64.urlsafe_b64encode(der(CALLER)).decode().rstrip('=')}"],
    "text before the PEM": [f'Cert="{encode("text" + pem(CALLER))}"'],
    "text after the PEM": [f'Cert="{encode(pem(CALLER) + "text")}"'],
    "two certificates": [f'Cert="{encode(pem(CALLER) + pem(OTHER))}"'],
    "the same certificate twice": [f'Cert="{encode(pem(CALLER) * 2)}"'],
    "another kind of PEM": [format_header(BASE64, "PUBLIC KEY", "PUBLIC KEY")],
    "a trusted certificate": [format_header(BASE64, "TRUSTED CERTIFICATE", "TRUSTED CERTIFICATE")],
    "another ending": [format_header(BASE64, end="PUBLIC KEY")],
    "no ending": [f'Cert="{encode(pem(CALLER).split("-----END")[0])}"'],
    "PEM headers": [format_header(f"Proc-Type: 4,ENCRYPTED\n\n{BASE64}")],
    "no base64": [format_header("....")],
    "base64 that is cut off": [format_header(BASE64[:-1])],
    "base64 with more padding": [format_header(f"{BASE64}====")],
    "base64 with bits that mean nothing": [format_header("QQF=")],
    "base64 for URLs": [format_header("-_-_")],
    # the hash
    "the Hash of another": [f"Hash={digest(OTHER)};{CERT}"],
    "an empty Hash": [f"Hash=;{CERT}"],
    "a Hash in capital letters": [f"Hash={digest(CALLER).upper()};{CERT}"],
    "a Hash that is cut off": [f"Hash={digest(CALLER)[:-1]};{CERT}"],
    "a Hash with more": [f"Hash={digest(CALLER)}00;{CERT}"],
    "a Hash with colons": [f"Hash={der(CALLER)[:32].hex(':')};{CERT}"],
}


@pytest.mark.parametrize("headers", MALFORMED.values(), ids=MALFORMED)
def test_ambiguous_headers_are_rejected(headers: list[str]) -> None:
    with pytest.raises(AuthenticationError) as refused:
        parse_forwarded_certificate(headers)
    assert refused.value.reason == AuthFailure.FORWARDED_MALFORMED
    assert refused.value.status == 401
    assert ENCODED[:40] not in refused.value.detail


def test_missing_header_has_its_own_reason() -> None:
    with pytest.raises(AuthenticationError) as refused:
        parse_forwarded_certificate([])
    assert refused.value.reason == AuthFailure.FORWARDED_MISSING


@given(st.text(alphabet=st.characters(exclude_characters='"\\', min_codepoint=32, max_codepoint=126), max_size=200))
@example(f'",Cert="{ENCODED}'.replace('"', ""))
@example(";Cert=x;Hash=y,")
def test_quoted_name_is_taken_literally(subject: str) -> None:
    assert parse_forwarded_certificate([f'{HASH};Subject="{subject}";{CERT}']) == der(CALLER)


@given(st.data())
def test_altered_valid_headers_name_no_other_caller(data: st.DataObject) -> None:
    """With a Hash, which Envoy always sends, an edited header names this caller or is rejected."""
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 80)))
        inserted = data.draw(
            st.sampled_from(["", ";", ",", '"', "\\", "=", "%", "%00", "%22", "Cert=", format_forwarded(OTHER), "x"])
        )
        text = text[:start] + inserted + text[end:]
    with suppress(AuthenticationError):
        assert parse_forwarded_certificate([text]) == der(CALLER)


@given(st.lists(st.text(max_size=300), max_size=3))
def test_any_header_is_a_certificate_or_rejected(headers: list[str]) -> None:
    with pytest.raises(AuthenticationError):
        parse_forwarded_certificate(headers)


# --- the strategy: listed proxies and verified certificates ---


class SettableClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now_us(self) -> int:
        return int((datetime.now(UTC) + self.ahead).timestamp() * 1_000_000)

    def monotonic_ns(self) -> int:
        return 0


@dataclass
class ProxySetup:
    """The strategy for forwarded certificates with its files, and calls through a proxy."""

    forwarding: Forwarding
    strategy: ForwardedCertificateStrategy
    authorities: ForwardedCaFile
    time: SettableClock

    @classmethod
    def create(cls, folder: Path) -> "ProxySetup":
        forwarding, time = Forwarding.create(folder), SettableClock()
        identities = IdentityFile(folder / "identities.yaml", behind_proxy=True)
        authenticator = Authenticator(identities, JwksUnion([JwksFile(folder / "jwks.json")]), time)
        authorities = ForwardedCaFile(forwarding.callers.folder / "ca.crt")
        return cls(
            forwarding, ForwardedCertificateStrategy(authenticator, identities, authorities, time), authorities, time
        )

    async def call(
        self, header: str | Iterable[str], *, hop: KeyPair | None = None, token: str | None = None
    ) -> Caller:
        """Call, by default through the good proxy with a good token."""
        headers = CIMultiDict({"Authorization": f"Bearer {token or self.forwarding.files.signer.token()}"})
        for value in [header] if isinstance(header, str) else header:
            headers.add(HEADER, value)
        caller, path, _ = self.strategy.authenticate(
            der(hop or self.forwarding.proxy), CIMultiDictProxy(headers), "/mutate"
        )
        assert path == "/mutate"
        return caller

    async def refusal(
        self, header: str | Iterable[str], *, hop: KeyPair | None = None, token: str | None = None
    ) -> str:
        with pytest.raises(AuthenticationError) as refused:
            await self.call(header, hop=hop, token=token)
        return refused.value.reason


@pytest.fixture
def setup(tmp_path: Path) -> ProxySetup:
    return ProxySetup.create(tmp_path)


async def test_caller_behind_the_proxy_is_identified_by_its_certificate_and_token(setup: ProxySetup) -> None:
    caller = await setup.call(format_forwarded(setup.forwarding.caller))
    assert (caller.role, caller.client_id, caller.certificate) == ("apiserver", SUBJECT, "kube-apiserver")
    assert (caller.issuer, AUDIENCE) == (ISSUER, "podgate")


async def test_unlisted_proxy_may_not_forward_certificates(setup: ProxySetup) -> None:
    header = format_forwarded(setup.forwarding.caller)
    pki = setup.forwarding.files.pki
    assert await setup.refusal(header, hop=pki.client("somebody-else")) == AuthFailure.NOT_A_PROXY
    assert await setup.refusal(header, hop=setup.forwarding.caller) == AuthFailure.NOT_A_PROXY


async def test_caller_that_connects_directly_is_rejected(setup: ProxySetup) -> None:
    direct = setup.forwarding.files.pki.client()
    assert await setup.refusal([], hop=direct) == AuthFailure.NOT_A_PROXY
    assert await setup.refusal(format_forwarded(direct), hop=direct) == AuthFailure.NOT_A_PROXY


async def test_a_proxy_may_not_call_as_itself(setup: ProxySetup) -> None:
    assert await setup.refusal([]) == AuthFailure.FORWARDED_MISSING
    assert await setup.refusal(format_forwarded(setup.forwarding.callers.client(PROXY))) == AuthFailure.NOT_A_PROXY


async def test_a_proxy_whose_certificate_has_expired_is_refused_on_its_open_connection(setup: ProxySetup) -> None:
    long_lived = setup.forwarding.callers.authority.issue_client("kube-apiserver", lifetime=timedelta(days=20))
    setup.time.ahead = timedelta(days=3)
    assert await setup.refusal(format_forwarded(long_lived)) == AuthFailure.CERTIFICATE_EXPIRED


@pytest.mark.parametrize("odd", list(make_unreadable(AUTHORITY)))
async def test_a_forwarded_certificate_that_cannot_be_read_is_refused(setup: ProxySetup, odd: str) -> None:
    certificate = make_unreadable(setup.forwarding.callers.authority)[odd]
    header = f'Cert="{encode(ssl.DER_cert_to_PEM_cert(certificate))}"'
    assert await setup.refusal(header) == AuthFailure.FORWARDED_FOREIGN


async def test_a_forwarded_certificate_is_verified_here_too(setup: ProxySetup) -> None:
    callers = setup.forwarding.callers
    foreign = {
        "another authority's": setup.forwarding.files.pki.client(),
        "expired": callers.client(expired=True),
        "a server's": callers.client(server_only=True),
        "the authority's own": callers.authority.key_pair,
        "self-signed": make_certificate(None),
        "a small key": make_certificate(callers.authority, key=rsa_key(1024)),  # the fault
        "for anything": make_certificate(callers.authority, usage=ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE),
        "for no purpose": make_certificate(callers.authority, usage=None),
        "a CA of its own": make_certificate(callers.authority, is_ca=True),
        "signed by a caller": make_certificate(setup.forwarding.caller),
        "an unknown critical extension": make_certificate(callers.authority, critical=True),
    }
    for name, credentials in foreign.items():
        assert await setup.refusal(format_forwarded(credentials)) == AuthFailure.FORWARDED_FOREIGN, name
    assert (await setup.call(format_forwarded(make_certificate(callers.authority)))).client_id == SUBJECT


async def test_junk_that_is_no_certificate_is_refused(setup: ProxySetup) -> None:
    for junk in (b"junk", b"\x30\x80", der(setup.forwarding.caller) + b"x", der(setup.forwarding.caller)[:-1]):
        header = format_header(base64.b64encode(junk).decode())
        assert await setup.refusal(header) == AuthFailure.FORWARDED_FOREIGN


async def test_expired_caller_is_rejected_after_an_accepted_call(setup: ProxySetup) -> None:
    header = format_forwarded(setup.forwarding.caller)
    await setup.call(header)
    setup.time.ahead = timedelta(hours=25)
    later = setup.forwarding.files.signer.token(setup.time.now_us() / 1_000_000)
    hop = setup.forwarding.files.pki.authority.issue_client(PROXY, lifetime=timedelta(days=20))
    assert await setup.refusal(header, hop=hop, token=later) == AuthFailure.FORWARDED_FOREIGN


async def test_a_removed_authority_is_removed_at_the_next_call(setup: ProxySetup) -> None:
    header = format_forwarded(setup.forwarding.caller)
    await setup.call(header)
    successor = Authority.create("callers-2")
    setup.forwarding.callers.folder.joinpath("ca.crt").write_text(pem(successor.key_pair))
    setup.authorities.reload()
    assert await setup.refusal(header) == AuthFailure.FORWARDED_FOREIGN
    assert (await setup.call(format_forwarded(successor.issue_client("kube-apiserver")))).client_id == SUBJECT


async def test_a_token_is_bound_to_the_forwarded_certificate(setup: ProxySetup) -> None:
    signer, caller = setup.forwarding.files.signer, setup.forwarding.caller
    bound = signer.token(cnf=build_binding(caller.certificate))
    assert (await setup.call(format_forwarded(caller), token=bound)).client_id == SUBJECT
    another = setup.forwarding.callers.client()
    assert await setup.refusal(format_forwarded(another), token=bound) == AuthFailure.BINDING
    to_the_proxy = signer.token(cnf=build_binding(setup.forwarding.proxy.certificate))
    assert await setup.refusal(format_forwarded(caller), token=to_the_proxy) == AuthFailure.BINDING


async def test_a_forwarded_certificate_alone_is_not_enough(setup: ProxySetup) -> None:
    header = format_forwarded(setup.forwarding.caller)
    assert await setup.refusal(header, token="nonsense") == AuthFailure.TOKEN_MALFORMED
    stranger = setup.forwarding.callers.client("stranger")
    assert await setup.refusal(format_forwarded(stranger)) == AuthFailure.IDENTITY_MISMATCH


# --- over the wire ---


async def test_over_the_wire_malformed_headers_are_rejected_and_the_next_good_call_is_answered(tmp_path: Path) -> None:
    forwarding = Forwarding.create(tmp_path)
    good = f"{HEADER}: {format_forwarded(forwarding.caller)}"
    async with run_server(forwarding.files, *forwarding.arguments) as server:
        server.context = forwarding.files.pki.context(forwarding.proxy)

        async def answer(*headers: str) -> bytes:
            async with line(server) as connection:
                lines = head(server, format_length()).removesuffix(b"\r\n")
                connection.send(
                    lines, *(f"{text}\r\n".encode(errors="surrogateescape") for text in headers), b"\r\n", BODY
                )
                return await connection.answer()

        for name, headers in MALFORMED.items():
            refused = await answer(*(f"{HEADER}: {text}" for text in headers))
            # Invalid HTTP is rejected before authentication, and the HTTP parser strips white space.
            assert status(refused) in {400, 401}, name
            assert len(refused) < 300, name
            assert b"Hash" not in refused, name
        assert status(await answer(good)) == 200
        assert status(await answer()) == 401
        assert status(await answer(good, "X-FORWARDED-CLIENT-CERT: x")) == 401
        malformed = await server.metric(refusals("malformed_forwarded_certificate"))
        assert malformed > len(MALFORMED) - 12
    log = (tmp_path / "server-0.log").read_text()
    assert ENCODED[:60] not in log
    assert "kube-apiserver" in log or '"suppressed"' in log


async def test_forwarded_certificate_with_many_names_is_accepted_up_to_the_bound(tmp_path: Path) -> None:
    forwarding = Forwarding.create(tmp_path)
    async with run_server(forwarding.files, *forwarding.arguments) as server:
        proxy = forwarding.files.pki.context(forwarding.proxy)
        for names, code in ((10, 200), (100, 200), (170, 200), (320, 401), (600, 400)):
            header = format_forwarded(issue_with_names(forwarding.callers.authority, names))
            status_code, _ = await server.post("/mutate", BODY, context=proxy, headers={HEADER: header})
            assert status_code == code, (names, len(header))


def issue_with_names(authority: Authority, count: int) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    sans = [x509.DNSName(f"name-{number:04}.podgate.example.org") for number in range(count)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(authority.key_pair.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
    )
    return KeyPair(builder.sign(authority.key_pair.key, hashes.SHA256()), key)


def refusals(reason: str) -> str:
    return f'podgate_refused_calls_total{{reason="authentication_{reason}"}}'


def test_identities_about_proxies_go_with_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "identities.yaml"
    file.write_text(BEHIND_A_PROXY)
    with pytest.raises(UserError, match="entries with the role proxy, and none is expected"):
        IdentityFile(file)
    assert len(IdentityFile(file, behind_proxy=True).value.proxies) == 1
    file.write_text(IDENTITIES)
    with pytest.raises(UserError, match="no entry has the role proxy"):
        IdentityFile(file, behind_proxy=True)
    for entry, message in (
        ("{role: proxy, certificate: {commonName: a}, issuer: x}", "[0].issuer: x: unknown field"),
        ("{role: proxy, certificate: {commonNameIsIssuer: true}}", "a proxy has no token, and so no issuer"),
        ("{role: proxy}", "[0].certificate: (absent): required"),
    ):
        file.write_text(f"- {entry}\n")
        with pytest.raises(UserError) as refused:
            IdentityFile(file, behind_proxy=True)
        assert message in str(refused.value)


def test_invalid_cas_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    for content, message in (("text", "holds no certificate"), (pem(CALLER), "is not a CA certificate")):
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            ForwardedCaFile(file)


def make_expired_authority() -> str:
    return pem(Authority.create("old", timedelta(days=1), datetime.now(UTC) - timedelta(days=2)).key_pair)


def test_expired_cas_replace_no_valid_ones_but_are_accepted_at_the_start(
    setup: ProxySetup,
) -> None:
    authorities, file = setup.authorities, setup.forwarding.callers.folder / "ca.crt"
    good, good_chains = file.read_text(), authorities.value
    file.write_text(make_expired_authority())
    authorities.reload()
    assert authorities.value is good_chains
    assert authorities.error == f"{file}: all its CAs have expired, so no client can be authenticated"
    restarted = ForwardedCaFile(file)
    assert (restarted.error, restarted.value.end_seconds < datetime.now(UTC).timestamp()) == (None, True)
    file.write_text(make_expired_authority() + good)
    restarted.reload()
    assert restarted.value.end_seconds == good_chains.end_seconds


KEYS: dict[str, Callable[[], CertificateIssuerPrivateKeyTypes]] = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "RSA of 2048 bits": lambda: rsa_key(2048),
    "P-224": lambda: ec.generate_private_key(ec.SECP224R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}
_POLICY = x509.PolicyInformation(x509.ObjectIdentifier("2.5.29.32.0"), None)
EXTENSIONS: dict[str, x509.ExtensionType] = {
    "names": x509.SubjectAlternativeName([x509.DNSName("ca")]),
    "purposes": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
    "name constraints": x509.NameConstraints([x509.DNSName("a")], None),
    "policies": x509.CertificatePolicies([_POLICY]),
    "policy constraints": x509.PolicyConstraints(0, None),
    "no policies": x509.InhibitAnyPolicy(0),
    "directory name constraints": x509.NameConstraints([x509.DirectoryName(x509.Name([]))], None),
    "an unknown extension": x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"),
}


@pytest.mark.parametrize("kind", [*KEYS, *EXTENSIONS])
def test_ca_is_accepted_if_its_certificates_verify_and_named_otherwise(tmp_path: Path, kind: str) -> None:
    key = KEYS.get(kind, KEYS["P-256"])()
    critical = [EXTENSIONS[kind]] if kind in EXTENSIONS else []
    ca = issue_ca("ca", key, key, x509.BasicConstraints(ca=True, path_length=None), *critical)
    leaf = issue_ca("kube-apiserver", key, KEYS["P-256"](), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
    try:
        ClientChainVerifier([ca]).check(leaf.public_bytes(Encoding.DER), datetime.now(UTC).timestamp())
        is_verified = True
    except ForeignCertificateError:
        is_verified = False
    file = tmp_path / "ca.crt"
    file.write_bytes(ca.public_bytes(Encoding.PEM))
    if is_verified:
        ForwardedCaFile(file)
        return
    with pytest.raises(UserError, match="CN=ca cannot verify certificates behind a proxy: ") as refused:
        ForwardedCaFile(file)
    assert "P-521" in refused.value.remedy


def test_ca_whose_subject_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Found by fuzzing: the verifier's own error would name the subject."""
    key = KEYS["P-256"]()
    ca = issue_ca("ca", key, key, x509.BasicConstraints(ca=True, path_length=None))
    name = b"\x06\x03\x55\x04\x03"  # the type commonName; the byte behind it is the kind of text
    signed = bytes.fromhex("2a8648ce3d040302"), bytes.fromhex("2ab648ce3d040302")  # ECDSA, and another number
    encoded = ca.public_bytes(Encoding.DER).replace(*signed, 1)
    head, _, tail = encoded.rpartition(name + b"\x0c")  # the issuer comes before the subject
    file = tmp_path / "ca.crt"
    file.write_text(ssl.DER_cert_to_PEM_cert(head + name + b"\x0b" + tail))
    with pytest.raises(UserError, match="whose subject cannot be read cannot verify certificates behind a proxy: "):
        ForwardedCaFile(file)


def issue_ca(
    name: str,
    issuer: CertificateIssuerPrivateKeyTypes,
    own_key: CertificateIssuerPrivateKeyTypes,
    *critical: x509.ExtensionType,
) -> x509.Certificate:
    """Return a certificate of an issuer called ca."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
        .public_key(own_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )
    for extension in critical:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(issuer, None if isinstance(issuer, EDWARDS) else hashes.SHA256())


async def test_server_with_expired_client_cas_is_not_ready_until_they_are_renewed(
    tmp_path: Path,
) -> None:
    forwarding = Forwarding.create(tmp_path)
    file = forwarding.callers.folder / "ca.crt"
    good = file.read_text()
    file.write_text(make_expired_authority())
    async with run_server(forwarding.files, *forwarding.arguments) as server:
        assert await server.get("/readyz") == (503, "all CAs of callers behind the proxy have expired\n")
        file.write_text(good)

        async def is_ready() -> bool:
            return (await server.get("/readyz"))[0] == 200

        await eventually(is_ready)


def make_certificate(
    issuer: Authority | KeyPair | None,
    *,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CLIENT_AUTH,
    is_ca: bool = False,
    critical: bool = False,
) -> KeyPair:
    """Return a certificate with the good caller's name, by default without a fault."""
    own_key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    issuing_pair = issuer.key_pair if isinstance(issuer, Authority) else issuer
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuing_pair.certificate.subject if issuing_pair else name)
        .public_key(own_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if critical:
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
        builder = builder.add_extension(unknown, critical=True)
    return KeyPair(builder.sign(issuing_pair.key if issuing_pair else own_key, hashes.SHA256()), own_key)  # type: ignore[arg-type]  # RSA works here too
