"""Identities of callers: parsing, matching, and reloading."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, KeyPair
from tests.harness.identity import IDENTITIES, Pki, der, identities, jwks, make_unreadable, signer
from tests.harness.server_process import Files, run_server
from tests.timeouts import HANG_SECONDS
from webhook.authentication.authenticator import Authenticator
from webhook.authentication.certificate_identity import read_certificate
from webhook.authentication.identities import CertificateField, ClientIdSource, Identity, Role
from webhook.authentication.identity_file import IdentityFile, parse_identities
from webhook.authentication.jwks_file import JwksFile
from webhook.authentication.published_keys import JwksUnion
from webhook.authentication.reasons import AuthFailure
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Caller

PAGE = Path(__file__).parents[2] / "docs" / "identities.md"


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


def test_identities_are_read_as_written() -> None:
    assert parse_identities(IDENTITIES.encode(), "identities.yaml").callers == (
        Identity(
            Role.APISERVER,
            CertificateField.COMMON_NAME,
            "kube-apiserver",
            "kube-apiserver",
            "podgate",
            "kube-apiserver",
            ClientIdSource.SUBJECT,
        ),
        Identity(
            Role.REPORTER,
            CertificateField.COMMON_NAME,
            "prober",
            "prober",
            "podgate",
            "prober-*",
            ClientIdSource.CLAIM,
            "client_id",
        ),
    )


GOOD = {
    "role": "apiserver",
    "certificate": "{commonName: a}",
    "issuer": "i",
    "audience": "podgate",
    "subject": "s",
}


def entry(**changed: str | None) -> str:
    members = {**GOOD, **changed}
    lines = [f"{key}: {value}" for key, value in members.items() if value is not None]
    return "- " + "\n  ".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "(document): (empty): there is no document"),
        ("# role: certificate:\n[]", "2:1: (document): []: no identity"),
        ("role: apiserver\ncertificate: x", "not a list"),
        ("- {role: x, certificate: [", "2:1: (document): (end): a value or a closing bracket is missing"),
        (entry() + "- text", "[1]: text: not a mapping"),
        ("- text", "does not look like a list of identities: it lacks role or certificate"),
        (entry() + entry(), "6:3: [1]: {...}: the same identity as in line 1: remove one"),
        (entry() + entry(role=None), "[1].role: (absent): required: add role"),
        (entry(role="admin"), "1:9: [0].role: admin: not one of its values: use apiserver, proxy or reporter"),
        (entry(role="[apiserver]"), "[0].role: [...]: not a single word"),
        (entry() + entry(certificate=None), "[1].certificate: (absent): required: add certificate"),
        (entry(certificate="{}"), "[0].certificate: {}: 0 fields: write exactly one of commonName, uri"),
        (entry(certificate="{commonName: a, uri: 'spiffe://a'}"), "2 fields: write exactly one of"),
        (entry(certificate="{common_name: a}"), "unknown field: did you mean commonName?"),
        (entry(certificate="{commonName: 7}"), "[0].certificate.commonName: 7: 7 without quotes is a number"),
        (entry(certificate="{commonName: ''}"), '[0].certificate.commonName: "": empty: write at least one character'),
        (entry(certificate="{uri: 'https://a'}"), '[0].certificate.uri: "https://a": not a SPIFFE ID'),
        (entry(certificate="{dnsName: '*.a'}"), "a wildcard: write one whole name"),
        (entry(certificate="{commonNameIsIssuer: false}"), "can only be true: write true, or leave it out"),
        (entry(issuer=None), "[0].issuer: (absent): required: add issuer"),
        (entry(issuer="7"), "[0].issuer: 7: 7 without quotes is a number"),
        (entry(audience=None), "[0].audience: (absent): required"),
        (entry(subject=None), "[0].subject: (absent): required"),
        (entry(subject="'a*b'"), '[0].subject: "a*b": a `*` that is not the last character: write `*` once'),
        (entry(subject="'a**'"), '[0].subject: "a**"'),
        (entry(clientId="{claim: ''}"), '[0].clientId.claim: "": empty'),
        (entry(clientId="{from: token}"), "[0].clientId.from: token: not one of its values: use commonName, issuer or"),
        (entry(clientId="{claim: c, from: issuer}"), "[0].clientId: {...}: 2 fields: write exactly one of claim, from"),
        (entry(clientId="subject"), "[0].clientId: subject: a single value, where a mapping of fields belongs"),
        (entry(subjct="s"), "[0].subjct: s: unknown field"),
        (entry() + "  role: reporter\n", "6:3: [0].role: reporter: written twice, first in line 1"),
    ],
)
def test_a_mistake_is_reported_with_its_place_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_identities(text.encode(), "identities.yaml")
    assert message in str(refused.value)
    assert re.match(r"identities\.yaml:\d+:\d+: ", str(refused.value))


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UserError) as refused:
        parse_identities((entry(role="admin", issuer=None) + entry(certificate="{}", extra="1")).encode(), "f")
    places = [line.split(": ")[1] for line in str(refused.value).splitlines()]
    assert places == ["[0].issuer", "[0].role", "[1].certificate", "[1].extra"]


def test_a_missing_file_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        IdentityFile(tmp_path / "none.yaml")


def caller(tmp_path: Path, identity: str, client: x509.Certificate, **claims: Any) -> Caller:
    issuer = signer()
    path = tmp_path / "jwks.json"
    path.write_text(jwks(issuer))
    authenticator = Authenticator(identities(identity), JwksUnion([JwksFile(path)]), SystemClock())
    return authenticator.authenticate(client.public_bytes(Encoding.DER), [f"Bearer {issuer.token(**claims)}"])


def test_the_common_name_may_have_to_be_the_issuer(tmp_path: Path) -> None:
    authority = Pki.create(tmp_path).authority
    identity = entry(certificate="{commonNameIsIssuer: true}", issuer=None, clientId="{from: issuer}")
    prober = authority.issue_client("prober").certificate
    assert caller(tmp_path, identity, prober, iss="prober", sub="s").client_id == "prober"
    with pytest.raises(AuthenticationError, match="identity_mismatch"):
        caller(tmp_path, identity, prober, iss="kube-apiserver", sub="s")


@pytest.mark.parametrize(
    ("subject", "matches"), [("node-1", True), ("node-", True), ("node", False), ("x-node-1", False)]
)
def test_a_trailing_star_stands_for_the_rest_of_the_subject(tmp_path: Path, subject: str, matches: bool) -> None:  # noqa: FBT001
    client = Pki.create(tmp_path).authority.issue_client("a").certificate
    if matches:
        assert caller(tmp_path, entry(subject="node-*"), client, iss="i", sub=subject).subject == subject
    else:
        with pytest.raises(AuthenticationError, match="identity_mismatch"):
            caller(tmp_path, entry(subject="node-*"), client, iss="i", sub=subject)


def test_a_spiffe_id_is_the_only_name_of_its_holder(tmp_path: Path) -> None:
    client = Pki.create(tmp_path).authority.issue_client("a", "spiffe://cluster/ns/x").certificate
    by_uri = entry(certificate="{uri: 'spiffe://cluster/ns/x'}")
    assert caller(tmp_path, by_uri, client, iss="i", sub="s").certificate == "spiffe://cluster/ns/x"
    with pytest.raises(AuthenticationError, match="identity_mismatch"):
        caller(tmp_path, entry(certificate="{commonName: a}"), client, iss="i", sub="s")


def test_a_dns_name_is_compared_whole_and_in_any_case(tmp_path: Path) -> None:
    authority = Pki.create(tmp_path).authority
    client = authority.issue_server("a", (x509.DNSName("Api.Example"),)).certificate
    assert caller(tmp_path, entry(certificate="{dnsName: API.example}"), client, iss="i", sub="s").role == "apiserver"
    with pytest.raises(AuthenticationError, match="identity_mismatch"):
        caller(tmp_path, entry(certificate="{dnsName: example}"), client, iss="i", sub="s")


def test_the_first_identity_that_fits_wins(tmp_path: Path) -> None:
    client = Pki.create(tmp_path).authority.issue_client("a").certificate
    both = entry(role="reporter", subject="'*'") + entry()
    assert caller(tmp_path, both, client, iss="i", sub="s").role == "reporter"


@pytest.mark.parametrize("value", [7, "", "a\nb", "x" * 257, None])
def test_a_client_id_that_cannot_be_shown_is_refused(tmp_path: Path, value: object) -> None:
    client = Pki.create(tmp_path).authority.issue_client("a").certificate
    with pytest.raises(AuthenticationError, match="holds no client id"):
        caller(tmp_path, entry(clientId="{claim: client_id}"), client, iss="i", sub="s", client_id=value)


@pytest.mark.parametrize(
    ("names", "uris"),
    [(["a", "b"], []), ([], ["spiffe://a", "spiffe://b"]), ([], ["spiffe://a", "https://b"])],
    ids=["two common names", "two SPIFFE IDs", "a SPIFFE ID and another URI"],
)
def test_ambiguous_certificate_is_rejected(tmp_path: Path, names: list[str], uris: list[str]) -> None:
    good = Pki.create(tmp_path).client()
    attributes = [x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(good.certificate.issuer)
        .public_key(good.key.public_key())
        .serial_number(1)
        .not_valid_before(good.certificate.not_valid_before_utc)
        .not_valid_after(good.certificate.not_valid_after_utc)
    )
    if uris:
        sans = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(sans, critical=False)
    certificate = builder.sign(good.key, hashes.SHA256())
    with pytest.raises(AuthenticationError, match="certificate_ambiguous"):
        read_certificate(der(KeyPair(certificate, good.key)), b"")


def test_malformed_certificate_is_rejected() -> None:
    with pytest.raises(AuthenticationError, match="certificate_ambiguous"):
        read_certificate(b"not DER", b"")


@pytest.mark.parametrize("odd", list(make_unreadable(Authority.create())))
def test_unreadable_certificate_is_rejected_whatever_its_defect(odd: str) -> None:
    with pytest.raises(AuthenticationError, match="certificate_ambiguous: cannot be read"):
        read_certificate(make_unreadable(Authority.create())[odd], b"")


def test_page_explains_every_reason() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(reason for reason, _ in rows) == sorted(AuthFailure)
    assert dict(rows).items() >= {"binding": "403", "role": "403", "identity_mismatch": "403", "expired": "401"}.items()


def test_changed_identities_are_loaded_and_invalid_ones_change_nothing(tmp_path: Path) -> None:
    path, reports = tmp_path / "identities.yaml", list[str | None]()
    path.write_text(entry(subject="s"))
    identity_file = IdentityFile(path, reports.append)
    path.write_text(entry(subject="t"))
    identity_file.reload()
    assert [identity.subject for identity in identity_file.value.callers] == ["t"]
    for text in (
        "",
        "- {role: x, certificate: [",
        entry(role="admin"),
        entry(role="reporter"),
        entry(subject="u") + entry(role="admin"),
    ):
        path.write_text(text)
        identity_file.reload()
        assert [identity.subject for identity in identity_file.value.callers] == ["t"], text
    assert (identity_file.generation, identity_file.failures, reports[:2]) == (2, 5, [None, None])
    assert str(reports[-1]).startswith(f"{path}:6:9: [1].role: admin")


def test_file_without_an_apiserver_identity_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "identities.yaml"
    path.write_text(entry(role="reporter"))
    with pytest.raises(UserError, match="no entry has the role apiserver: every review would be refused") as refused:
        IdentityFile(path)
    assert refused.value.remedy.startswith("add {role: apiserver")


async def test_running_server_applies_changed_identities_to_verified_tokens_too(
    tmp_path: Path,
) -> None:
    files = Files.create(tmp_path)
    identities_file = tmp_path / "identities.yaml"
    token = files.signer.token()
    async with run_server(files) as server:
        assert (await server.post("/nowhere", token=token))[0] == 404
        identities_file.write_text(IDENTITIES.replace("subject: kube-apiserver", "subject: somebody-else"))
        async with asyncio.timeout(HANG_SECONDS):
            while (await server.post("/nowhere", token=token))[0] == 404:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.2)
        assert await server.post("/nowhere", token=token) == (403, "forbidden\n")
        identities_file.write_text("- {role: admin}")
        await server.wait_for_metric('podgate_file_reloads_total{file="identities",result="failure"}', 1)
        assert (await server.post("/nowhere", token=token))[0] == 403
        assert (await server.get("/readyz"))[0] == 200
