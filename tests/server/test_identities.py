import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Credentials
from tests.server.identity import IDENTITIES, Pki, der, jwks, signer
from webhook.adapters.jwks_file import JwksFile
from webhook.authentication import Authenticator
from webhook.certificates import read_certificate
from webhook.errors import AuthenticationError, UserError
from webhook.identities import CertificateField, ClientIdSource, Identity, Role
from webhook.identity_file import load_identities, parse_identities
from webhook.ports import Caller


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


def test_identities_are_read_as_written() -> None:
    assert parse_identities(IDENTITIES, "identities.yaml") == (
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
    ("text", "says"),
    [
        ("", "must be a list of at least one identity, not missing"),
        ("[]", "must be a list of at least one identity"),
        ("role: apiserver", "must be a list"),
        ("- [", "not YAML"),
        ("- text", "[0]: 'text': must be a mapping"),
        (entry() + entry(), "[1]: says the same as [0]"),
        (entry(role=None), "[0].role: missing: must be one of apiserver, reporter"),
        (entry(role="admin"), "[0].role: 'admin': must be one of apiserver, reporter"),
        (entry(role="[apiserver]"), "[0].role: ['apiserver']"),
        (entry(certificate=None), "[0].certificate: missing: must have exactly one of commonName, uri"),
        (entry(certificate="{}"), "[0].certificate: {}: must have exactly one of"),
        (entry(certificate="{commonName: a, uri: 'spiffe://a'}"), "must have exactly one of"),
        (entry(certificate="{common_name: a}"), "must have exactly one of"),
        (entry(certificate="{commonName: 7}"), "[0].certificate.commonName: 7: must be a text"),
        (entry(certificate="{commonName: ''}"), "[0].certificate.commonName: '': must be a text, not empty"),
        (entry(certificate="{uri: 'https://a'}"), "[0].certificate.uri: 'https://a': must begin with spiffe://"),
        (entry(certificate="{dnsName: '*.a'}"), "must be one name: no wildcards"),
        (entry(certificate="{commonNameIsIssuer: false}"), "must be true; leave it out otherwise"),
        (entry(issuer=None), "[0].issuer: missing: must be a text"),
        (entry(issuer="7"), "[0].issuer: 7: must be a text"),
        (entry(audience=None), "[0].audience: missing"),
        (entry(subject=None), "[0].subject: missing"),
        (entry(subject="'a*b'"), "[0].subject: 'a*b': `*` stands for the rest of a subject: once, at its end"),
        (entry(subject="'a**'"), "[0].subject: 'a**'"),
        (entry(clientId="{claim: ''}"), "[0].clientId.claim: '': must name a claim"),
        (entry(clientId="{from: token}"), "[0].clientId.from: 'token': must be one of subject, issuer, commonName"),
        (entry(clientId="subject"), "[0].clientId: 'subject': must have exactly one of claim, from"),
        (entry(subjct="s"), "[0].subjct: 's': unknown key"),
        (entry() + "  role: reporter\n", "the key 'role' stands twice"),
    ],
)
def test_a_mistake_is_told_with_its_place_value_and_remedy(text: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_identities(text, "identities.yaml")
    assert says in str(refused.value)
    assert str(refused.value).startswith("identities.yaml: ")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(UserError) as refused:
        parse_identities(entry(role="admin", issuer=None) + entry(certificate="{}", extra="1"), "f")
    places = [line.split(": ")[1] for line in str(refused.value).splitlines()]
    assert places == ["[0].role", "[0].issuer", "[1].extra", "[1].certificate"]


def test_a_missing_file_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_identities(tmp_path / "none.yaml")


def caller(tmp_path: Path, identity: str, client: x509.Certificate, **claims: Any) -> Caller:
    issuer = signer()
    path = tmp_path / "jwks.json"
    path.write_text(jwks(issuer))
    authenticator = Authenticator(parse_identities(identity, "f"), JwksFile(path), SystemClock())
    return authenticator.authenticate(client.public_bytes(Encoding.DER), [f"Bearer {issuer.token(**claims)}"])


def test_the_common_name_may_have_to_be_the_issuer(tmp_path: Path) -> None:
    authority = Pki.create(tmp_path).authority
    identity = entry(certificate="{commonNameIsIssuer: true}", issuer=None, clientId="{from: issuer}")
    prober = authority.issue_client("prober").certificate
    assert caller(tmp_path, identity, prober, iss="prober", sub="s").client_id == "prober"
    with pytest.raises(AuthenticationError, match="identity_mismatch"):
        caller(tmp_path, identity, prober, iss="kube-apiserver", sub="s")


@pytest.mark.parametrize(("subject", "fits"), [("node-1", True), ("node-", True), ("node", False), ("x-node-1", False)])
def test_a_trailing_star_stands_for_the_rest_of_the_subject(tmp_path: Path, subject: str, fits: bool) -> None:  # noqa: FBT001
    client = Pki.create(tmp_path).authority.issue_client("a").certificate
    if fits:
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
def test_a_certificate_that_leaves_open_who_it_is_is_refused(tmp_path: Path, names: list[str], uris: list[str]) -> None:
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
        read_certificate(der(Credentials(certificate, good.key)), b"")


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="certificate_ambiguous"):
        read_certificate(b"not DER", b"")
