import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import Authority, KeyPair, check_uri, list_server_names, parse_san
from certs.errors import CertsError
from certs.files import write_key_pair
from certs.inspection import describe, is_signed_by

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(now=NOW)


@pytest.fixture(scope="module")
def leaves(authority: Authority) -> list[x509.Certificate]:
    return [
        authority.issue_server("localhost", list_server_names("localhost"), now=NOW).certificate,
        authority.issue_client("kube-apiserver", "spiffe://cluster/api", now=NOW).certificate,
    ]


def test_authority_signs_only_leaves(authority: Authority) -> None:
    certificate = authority.key_pair.certificate
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature
    assert isinstance(authority.key_pair.key.curve, ec.SECP256R1)


def test_every_certificate_has_subject_and_authority_key_identifiers(
    authority: Authority, leaves: list[x509.Certificate]
) -> None:
    ca = authority.key_pair.certificate
    ca_identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    for certificate in [ca, *leaves]:
        assert certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
        authority_identifier = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        assert authority_identifier.key_identifier == ca_identifier
        assert is_signed_by(certificate, ca)


def test_leaves_are_backdated_and_have_unique_serials(leaves: list[x509.Certificate]) -> None:
    for leaf in leaves:
        assert leaf.not_valid_before_utc == NOW - timedelta(hours=1)
        assert leaf.not_valid_after_utc == NOW + timedelta(days=30)
    assert len({leaf.serial_number for leaf in leaves}) == len(leaves)
    assert all(leaf.serial_number.bit_length() > 64 for leaf in leaves)


def test_leaf_expires_no_later_than_its_authority() -> None:
    short = Authority.create(lifetime=timedelta(days=3), now=NOW)
    leaf = short.issue_client("a", lifetime=timedelta(days=30), now=NOW).certificate
    assert leaf.not_valid_after_utc == short.key_pair.certificate.not_valid_after_utc
    with pytest.raises(CertsError, match="expired at 2026-03-04"):
        short.issue_client("a", now=NOW + timedelta(days=3))


def test_generations_of_an_authority_have_different_names(authority: Authority) -> None:
    reissued = Authority.create(now=NOW)
    assert reissued.key_pair.certificate.subject != authority.key_pair.certificate.subject


def test_strict_verification_accepts_what_is_issued(tmp_path: Path) -> None:
    """Python 3.13 uses VERIFY_X509_STRICT by default."""
    authority = Authority.create()
    write_key_pair(authority.key_pair, tmp_path / "ca.crt", tmp_path / "ca.key")
    server = authority.issue_server("localhost", list_server_names("localhost"))
    client = authority.issue_client("kube-apiserver")
    for name, leaf in (("server", server), ("client", client)):
        write_key_pair(leaf, tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    contexts = [_strict(peer, tmp_path) for peer in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = contexts[0].wrap_bio(to_server, to_client, server_side=True)
    client_side = contexts[1].wrap_bio(to_client, to_server, server_hostname="localhost")
    for peer in (client_side, server_side, client_side):
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            continue
    server_side.do_handshake()
    assert server_side.getpeercert(binary_form=True) is not None


def _strict(protocol: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(folder / "ca.crt")
    name = "server" if protocol == ssl.PROTOCOL_TLS_SERVER else "client"
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


def test_service_name_expands_to_its_dns_forms() -> None:
    assert [name.value for name in list_server_names("podgate.podgate-system.svc")] == [
        "podgate.podgate-system.svc",
        "podgate.podgate-system.svc.cluster.local",
        "podgate.podgate-system",
        "podgate",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dns:a.example", "dns:a.example"),
        ("a.example", "dns:a.example"),
        ("*.a.example", "dns:*.a.example"),
        ("ip:10.0.0.1", "ip:10.0.0.1"),
        ("10.0.0.1", "ip:10.0.0.1"),
        ("ip:fd00::1", "ip:fd00::1"),
        ("fd00::1", "ip:fd00::1"),
    ],
)
def test_a_name_is_read_with_or_without_its_kind(authority: Authority, text: str, expected: str) -> None:
    leaf = authority.issue_server("a", (parse_san(text),), now=NOW).certificate
    assert describe(leaf, [], NOW).sans == (expected,)


@pytest.mark.parametrize("text", ["", "dns:", "ip:a.example", "ip:300.0.0.1", "a b", "ü.example", "a..b", "uri:x"])
def test_invalid_name_is_rejected(text: str) -> None:
    with pytest.raises(CertsError, match="is not a valid SAN"):
        parse_san(text)


@pytest.mark.parametrize("name", ["bücher.x.svc", "pod gate.x.svc", "podgate..svc", ".x.svc"])
def test_invalid_service_name_is_rejected(name: str) -> None:
    with pytest.raises(CertsError, match="is not a valid SAN"):
        list_server_names(name)


@pytest.mark.parametrize("text", ["", "notauri", "spiffe:x", "spiffe://", "spiffe://bü", "spiffe://a b", "://a"])
def test_invalid_uri_is_rejected(text: str) -> None:
    with pytest.raises(CertsError, match="is not an absolute URI"):
        check_uri(text)


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_common_name_of_invalid_length_is_rejected(authority: Authority, name: str) -> None:
    with pytest.raises(CertsError, match="common name"):
        authority.issue_client(name, now=NOW)


def test_server_name_too_long_for_a_common_name_is_only_in_critical_sans(authority: Authority) -> None:
    name = f"{'a' * 60}.{'b' * 60}.svc"
    leaf = authority.issue_server(name, list_server_names(name), now=NOW).certificate
    assert list(leaf.subject) == []
    assert leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical


def test_an_authority_of_foreign_or_unfit_material_is_refused(authority: Authority) -> None:
    other = Authority.create(now=NOW)
    with pytest.raises(CertsError, match="do not match"):
        Authority.from_key_pair(KeyPair(authority.key_pair.certificate, other.key_pair.key))
    with pytest.raises(CertsError, match="is not a CA certificate"):
        Authority.from_key_pair(authority.issue_client("a", now=NOW))


def test_description_has_subject_expiry_and_issuer(authority: Authority, leaves: list[x509.Certificate]) -> None:
    other, ca = Authority.create(now=NOW).key_pair.certificate, authority.key_pair.certificate
    description = describe(leaves[1], [other, ca], NOW + timedelta(days=29, hours=12))
    assert description.subject == "CN=kube-apiserver"
    assert description.sans == ("uri:spiffe://cluster/api",)
    assert description.usages == ("clientAuth",)
    assert not description.is_ca
    assert description.days_left == 0.5
    assert description.verified_by == ca.subject.rfc4514_string() == description.issuer
    assert describe(leaves[1], [other], NOW + timedelta(days=31)).verified_by is None
    assert describe(leaves[1], [other], NOW + timedelta(days=31)).days_left == -1


def test_leaf_cannot_sign_certificates(leaves: list[x509.Certificate]) -> None:
    assert not is_signed_by(leaves[0], leaves[0])
