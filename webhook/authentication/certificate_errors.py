"""Names of extensions that cannot be read: cryptography reads all of a certificate at once, and names none."""

import ssl
from collections.abc import Iterator
from contextlib import suppress

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from webhook.authentication.certificate_identity import UNREADABLE

_NAMES = {
    "2.5.29.14": "subjectKeyIdentifier",
    "2.5.29.15": "keyUsage",
    "2.5.29.17": "subjectAltName",
    "2.5.29.18": "issuerAltName",
    "2.5.29.19": "basicConstraints",
    "2.5.29.30": "nameConstraints",
    "2.5.29.31": "cRLDistributionPoints",
    "2.5.29.32": "certificatePolicies",
    "2.5.29.35": "authorityKeyIdentifier",
    "2.5.29.36": "policyConstraints",
    "2.5.29.37": "extKeyUsage",
    "1.3.6.1.5.5.7.1.1": "authorityInfoAccess",
}
_SEQUENCE, _EXTENSIONS = 0x30, 0xA3


def find_malformed_extension(certificate: x509.Certificate) -> str | None:
    """Return the fault of the first extension that cannot be read, with its name; None if all can."""
    try:
        certificate.extensions  # noqa: B018  it reads them
    except UNREADABLE as error:
        return _name_malformed_extension(certificate) or f"its extensions cannot be read: {error}"
    return None


def find_ca_fault(certificate: x509.Certificate) -> str | None:
    """Return a malformed extension, or that OpenSSL knows no CA in it: OpenSSL reads more extensions."""
    fault = find_malformed_extension(certificate)
    if fault is None and not _is_ca_for_openssl(certificate.public_bytes(Encoding.DER)):
        return "is no CA for OpenSSL: one of its extensions is malformed"
    return fault


def _is_ca_for_openssl(der: bytes) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=der)
    except ssl.SSLError:
        return False
    if context.get_ca_certs(binary_form=True):
        return True
    with suppress(ssl.SSLError):  # else the next call would report the error that OpenSSL keeps of this one
        context.load_verify_locations(cadata=der)
    return False


def _name_malformed_extension(certificate: x509.Certificate) -> str | None:
    """Read each extension in a certificate that has no other, and return the first fault."""
    tbs, *signature = _split_sequence(certificate.public_bytes(Encoding.DER))
    fields = _split_sequence(tbs)
    kept = [field for field in fields if field[0] != _EXTENSIONS]
    for field in fields[len(kept) :]:
        for extension in _split_sequence(_read_content(field)):
            alone = _encode_element(_EXTENSIONS, _encode_element(_SEQUENCE, extension))
            der = _encode_element(_SEQUENCE, _encode_element(_SEQUENCE, *kept, alone), *signature)
            try:
                x509.load_der_x509_certificate(der).extensions  # noqa: B018  as above
            except UNREADABLE as error:
                oid = ".".join(map(str, _decode_oid(_read_content(_split_sequence(extension)[0]))))
                return f"its extension {_NAMES.get(oid, oid)} is malformed: {error}"
    return None


def _split_sequence(der: bytes) -> list[bytes]:
    """Return the elements of a DER sequence, whole."""
    content, parts = _read_content(der), []
    while content:
        start, length = _read_length(content)
        parts.append(content[: start + length])
        content = content[start + length :]
    return parts


def _read_content(der: bytes) -> bytes:
    start, length = _read_length(der)
    return der[start : start + length]


def _read_length(der: bytes) -> tuple[int, int]:
    """Return where the content of the first element begins, and its length."""
    if der[1] < 0x80:  # noqa: PLR2004  DER: the length itself, else the number of its bytes
        return 2, der[1]
    start = 2 + (der[1] & 0x7F)
    return start, int.from_bytes(der[2:start])


def _encode_element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:  # noqa: PLR2004  as above
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(digits))) + digits + content


def _decode_oid(oid: bytes) -> Iterator[int]:
    number, is_first = 0, True
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte & 0x80:
            continue
        if is_first:
            top = min(number // 40, 2)
            yield from (top, number - 40 * top)
        else:
            yield number
        number, is_first = 0, False
