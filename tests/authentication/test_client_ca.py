"""Client CAs that can verify no client: each is named with its fault."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from tests.authentication.client_ca import CA, authority, make_garbled_extension
from tests.harness.identity import Pki
from tests.harness.rsa_keys import roca_key, rsa_key
from webhook.authentication.forwarded_certificate import ForwardedCaFile
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile
from webhook.tls.context import TlsFiles, TlsPaths

SIGNS_NO_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=False,
    crl_sign=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def extension_twice() -> bytes:
    other_oid = bytes.fromhex("0603551d75")
    certificate = authority(
        CA, x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.117"), b"\x30\x03\x01\x01\xff")
    )
    return certificate.replace(other_oid, bytes.fromhex("0603551d13"))


UNREADABLE = "certificate 2 in it cannot be read: "
MALFORMED = {
    "basicConstraints": ExtensionOID.BASIC_CONSTRAINTS,
    "keyUsage": ExtensionOID.KEY_USAGE,
    "subjectAltName": ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    "nameConstraints": ExtensionOID.NAME_CONSTRAINTS,
    "subjectKeyIdentifier": ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    "authorityKeyIdentifier": ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    "extKeyUsage": ExtensionOID.EXTENDED_KEY_USAGE,
    "certificatePolicies": ExtensionOID.CERTIFICATE_POLICIES,
    "cRLDistributionPoints": ExtensionOID.CRL_DISTRIBUTION_POINTS,
    "authorityInfoAccess": ExtensionOID.AUTHORITY_INFORMATION_ACCESS,
    "2.5.29.46": ExtensionOID.FRESHEST_CRL,
}
NAME_CONSTRAINTS = {
    "empty": "3000",
    "with half a network": "300ea00c300a87080a000000ff00ff00",
    "with trailing bytes": "3008a0063004820261620000",
    "of an unknown name": "3006a00430028300",
}
OF_OPENSSL = {
    "IP addresses": "1.3.6.1.5.5.7.1.7",
    "AS numbers": "1.3.6.1.5.5.7.1.8",
    "a Netscape type": "2.16.840.1.113730.1.1",
}
FAULTS = {
    **{
        f"a malformed {name}": (
            authority(*(() if name == "basicConstraints" else (CA,)), make_garbled_extension(oid)),
            f"certificate 2 in it, CN=odd: its extension {name} is malformed: ",
        )
        for name, oid in MALFORMED.items()
    },
    **{
        f"name constraints {kind}": (
            authority(CA, x509.UnrecognizedExtension(ExtensionOID.NAME_CONSTRAINTS, bytes.fromhex(value))),
            "certificate 2 in it, CN=odd: its extension nameConstraints is malformed: ",
        )
        for kind, value in NAME_CONSTRAINTS.items()
    },
    **{
        f"malformed {kind}": (
            authority(CA, make_garbled_extension(x509.ObjectIdentifier(oid))),
            "CN=odd is no CA for OpenSSL: one of its extensions is malformed",
        )
        for kind, oid in OF_OPENSSL.items()
    },
    "an extension twice": (extension_twice(), "certificate 2 in it, CN=odd: its extensions cannot be read: "),
    "an unknown curve": (
        authority(CA).replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030105")),
        UNREADABLE,
    ),
    "no extensions": (authority(), "CN=odd is not a CA certificate"),
    "a leaf": (authority(x509.BasicConstraints(ca=False, path_length=None)), "CN=odd is not a CA certificate"),
    "a key usage without keyCertSign": (
        authority(CA, SIGNS_NO_CERTIFICATES),
        "CN=odd is not made to sign certificates (no key usage keyCertSign)",
    ),
    "a short key": (
        authority(CA, key=rsa_key(1024)),  # the fault
        "CN=odd has an RSA key of 1024 bits, fewer than 2048",
    ),
    "a key whose private half can be computed": (
        authority(CA, key=roca_key()),
        "CN=odd has an RSA key whose private half can be computed (CVE-2017-15361, ROCA)",
    ),
}


def files_of_connections(pki: Pki) -> WatchedFile[Any]:
    return TlsFiles(TlsPaths(pki.paths.certificate, pki.paths.key, pki.folder / "ca.crt"))


def files_of_callers_behind_a_proxy(pki: Pki) -> WatchedFile[Any]:
    return ForwardedCaFile(pki.folder / "ca.crt")


@pytest.mark.parametrize("open_files", [files_of_connections, files_of_callers_behind_a_proxy])
@pytest.mark.parametrize("fault", FAULTS)
def test_ca_that_cannot_sign_is_named_at_the_start_and_changes_nothing_later(
    tmp_path: Path, open_files: Callable[[Pki], WatchedFile[Any]], fault: str
) -> None:
    pki, (der, message) = Pki.create(tmp_path), FAULTS[fault]
    bundle, files = pki.folder / "ca.crt", open_files(pki)
    bundle.write_bytes(bundle.read_bytes() + ssl.DER_cert_to_PEM_cert(der).encode())
    files.reload()
    assert str(files.error).startswith(f"{bundle}: {message}")
    assert (files.generation, files.failures) == (1, 1)
    with pytest.raises(UserError) as refused:
        open_files(pki)
    assert str(refused.value) == files.error
