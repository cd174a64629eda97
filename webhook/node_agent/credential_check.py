"""Checks of kube-apiserver's credentials before they are written: certificate, key and token."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from certs import PrivateKey, is_signed_by
from webhook.authentication.certificate_identity import UNREADABLE
from webhook.authentication.client_leaf import find_leaf_fault
from webhook.authentication.unverified import read_token
from webhook.errors import UserError

_LITTLE_SHARE = 100
"""Divisor of a lifetime: 9 s of 15 minutes, the shortest lifetime with two ports; 3 h of two weeks."""
_ISSUE = "replace it: the controller issues one, or use podgate certs issue --client"


@dataclass(frozen=True, slots=True)
class Token:
    """A JWT and its claims, unverified: Podgate verifies them."""

    text: str = field(repr=False)
    audience: str
    subject: str
    issued_at_seconds: int
    expires_at_seconds: int

    @property
    def lifetime_seconds(self) -> int:
        return self.expires_at_seconds - self.issued_at_seconds


def encode_pair(secret: Mapping[str, bytes], place: str, now: datetime) -> bytes:
    """Return certificate and key as one PEM text; UserError if Podgate would reject them now."""
    chain = _load_chain(secret, "tls.crt", place)
    leaf, key = chain[0], _load_key(secret, place)
    if leaf.public_key() != key.public_key():
        raise UserError(f"{place}: tls.crt and tls.key do not match", _ISSUE)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        lives = f"{leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} to {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise UserError(f"{place}: tls.crt: valid from {lives}, not now", _ISSUE)
    if (fault := _find_fault(leaf)) is not None:
        raise UserError(f"{place}: tls.crt: {fault}", _ISSUE)
    if secret.get("ca.crt") and not any(is_signed_by(leaf, ca) for ca in _load_chain(secret, "ca.crt", place)):
        issuer = leaf.issuer.rfc4514_string()
        raise UserError(f"{place}: tls.crt: signed by {issuer}, which is not among the CAs in its ca.crt", _ISSUE)
    certificates = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)
    return certificates + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def encode_port_pair(key: str, secret: Mapping[str, bytes], place: str, now: datetime) -> bytes:
    """Return the pair under a key of the Secret; the newest pair if it is missing, invalid or about to expire."""
    stored = None
    if (pem := secret.get(key)) is not None:
        with contextlib.suppress(UserError):
            stored = encode_pair({**secret, "tls.crt": pem, "tls.key": pem}, place, now)
    if stored is not None and _has_life_left(stored, now):
        return stored
    try:
        return encode_pair(secret, place, now)
    except UserError:
        if stored is None:
            raise
        return stored


def _has_life_left(pem: bytes, now: datetime) -> bool:
    """Return whether enough lifetime is left to switch ports before it expires."""
    leaf = x509.load_pem_x509_certificate(pem)
    ends, begins = leaf.not_valid_after_utc, leaf.not_valid_before_utc
    return ends - now > (ends - begins) / _LITTLE_SHARE


def find_expiry(pem: bytes) -> datetime:
    """Return the expiry of the first certificate of a PEM text; ValueError if there is none."""
    return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc


def parse_token(text: str) -> Token:
    """Parse a JWT's claims, unverified; ValueError if it is invalid."""
    claims = read_token(text).claims
    try:
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        issued_at_seconds, expires_at_seconds = int(claims["iat"]), int(claims["exp"])
        return Token(text.strip(), " ".join(audiences), str(claims["sub"]), issued_at_seconds, expires_at_seconds)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ValueError("not a JWT with aud, sub, iat and exp") from None


def check_token(text: bytes | str, audience: str, place: str, now: datetime) -> Token:
    """Return the parsed token; UserError if Podgate would reject it now."""
    try:
        found = parse_token(text if isinstance(text, str) else text.decode("ascii"))
    except ValueError as error:  # also UnicodeDecodeError, whose text would show the token
        said = "not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UserError(f"{place}: {said}", "replace it with a token") from None
    if found.audience != audience:
        raise UserError(f"{place}: for the audience {found.audience!r}, not {audience!r}", "issue it for --audience")
    if found.expires_at_seconds <= now.timestamp():
        ended = datetime.fromtimestamp(found.expires_at_seconds, UTC)
        raise UserError(f"{place}: expired at {ended:%Y-%m-%dT%H:%M:%SZ}", "see why it is not renewed")
    return found


def _load_chain(secret: Mapping[str, bytes], key: str, place: str) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(secret.get(key, b""))
        found[0].issuer  # noqa: B018  it is read only now
    except (ValueError, TypeError):
        raise UserError(f"{place}: {key}: holds no certificate in PEM", _ISSUE) from None
    return found


def _load_key(secret: Mapping[str, bytes], place: str) -> PrivateKey:
    try:
        return load_pem_private_key(secret.get("tls.key", b""), password=None)  # type: ignore[return-value]  # compared next
    except (ValueError, TypeError):
        raise UserError(f"{place}: tls.key: holds no private key in PEM without a passphrase", _ISSUE) from None


def _find_fault(leaf: x509.Certificate) -> str | None:
    """Return why Podgate would reject it as a client certificate."""
    try:
        return find_leaf_fault(leaf)
    except (UnsupportedAlgorithm, *UNREADABLE):
        return "cannot be read"
