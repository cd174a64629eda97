"""What kube-apiserver shows Podgate, looked at before it is written: a pair that is good now, a token that will be."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from certs import PrivateKey, signed_by
from webhook.authentication.certificate_identity import UNREADABLE
from webhook.authentication.client_leaf import fault_of_leaf
from webhook.authentication.tokens.unverified import read_token
from webhook.errors import UserError

_LITTLE_SHARE = 100
"""Of a life of 12 minutes, the shortest with doors, that is less than is ever left; of two weeks it is three hours."""
_ISSUE = "have a good one put there: the controller does, or podgate certs issue --client makes one"


@dataclass(frozen=True, slots=True)
class Token:
    """A JWT, and what it says of itself. Whether that is true is for Podgate to judge."""

    text: str = field(repr=False)
    audience: str
    subject: str
    issued_at_seconds: int
    expires_at_seconds: int

    @property
    def lifetime_seconds(self) -> int:
        return self.expires_at_seconds - self.issued_at_seconds


def pair(secret: Mapping[str, bytes], place: str, now: datetime) -> bytes:
    """Return certificate and key as one PEM text; UserError where Podgate would not take them now."""
    chain = _chain(secret, "tls.crt", place)
    leaf, key = chain[0], _key(secret, place)
    if leaf.public_key() != key.public_key():
        raise UserError(f"{place}: tls.crt and tls.key do not belong together", _ISSUE)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        lives = f"{leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} to {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise UserError(f"{place}: tls.crt: valid from {lives}, not now", _ISSUE)
    if (fault := _fault_of(leaf)) is not None:
        raise UserError(f"{place}: tls.crt: {fault}", _ISSUE)
    if secret.get("ca.crt") and not any(signed_by(leaf, ca) for ca in _chain(secret, "ca.crt", place)):
        issuer = leaf.issuer.rfc4514_string()
        raise UserError(f"{place}: tls.crt: signed by {issuer}, which is none of the CAs in its ca.crt", _ISSUE)
    certificates = b"".join(one.public_bytes(Encoding.PEM) for one in chain)
    return certificates + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def behind(door: str, secret: Mapping[str, bytes], place: str, now: datetime) -> bytes:
    """Return what is kept for a door, or the newest pair where that is missing, or good no more, or hardly any more."""
    kept = None
    if (pem := secret.get(door)) is not None:
        with contextlib.suppress(UserError):
            kept = pair({**secret, "tls.crt": pem, "tls.key": pem}, place, now)
    if kept is not None and _has_life_left(kept, now):
        return kept
    try:
        return pair(secret, place, now)
    except UserError:
        if kept is None:
            raise
        return kept


def _has_life_left(pem: bytes, now: datetime) -> bool:
    """Return whether there is still time for the calls to be turned away from it."""
    leaf = x509.load_pem_x509_certificate(pem)
    ends, begins = leaf.not_valid_after_utc, leaf.not_valid_before_utc
    return ends - now > (ends - begins) / _LITTLE_SHARE


def expiry_of(pem: bytes) -> datetime:
    """Return the end of the first certificate of a PEM text; ValueError where there is none."""
    return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc


def token_of(text: str) -> Token:
    """Read a JWT's claims, unverified; ValueError where it is none."""
    claims = read_token(text).claims
    try:
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        issued_at_seconds, expires_at_seconds = int(claims["iat"]), int(claims["exp"])
        return Token(text.strip(), " ".join(audiences), str(claims["sub"]), issued_at_seconds, expires_at_seconds)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ValueError("it is no JWT with aud, sub, iat and exp") from None


def token(text: bytes | str, audience: str, place: str, now: datetime) -> Token:
    """Return a token that may be written; UserError where Podgate would not take it now."""
    try:
        found = token_of(text if isinstance(text, str) else text.decode("ascii"))
    except ValueError as error:  # a UnicodeDecodeError is one, and would show the token
        said = "it is no text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UserError(f"{place}: {said}", "have a token put there") from None
    if found.audience != audience:
        raise UserError(f"{place}: for the audience {found.audience!r}, not {audience!r}", "issue it for --audience")
    if found.expires_at_seconds <= now.timestamp():
        ended = datetime.fromtimestamp(found.expires_at_seconds, UTC)
        raise UserError(f"{place}: expired at {ended:%Y-%m-%dT%H:%M:%SZ}", "see why it is not renewed")
    return found


def _chain(secret: Mapping[str, bytes], key: str, place: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(secret.get(key, b""))
    except ValueError:
        raise UserError(f"{place}: {key}: holds no certificate in PEM", _ISSUE) from None


def _key(secret: Mapping[str, bytes], place: str) -> PrivateKey:
    try:
        return load_pem_private_key(secret.get("tls.key", b""), password=None)  # type: ignore[return-value]  # compared next
    except (ValueError, TypeError):
        raise UserError(f"{place}: tls.key: holds no private key in PEM without a passphrase", _ISSUE) from None


def _fault_of(leaf: x509.Certificate) -> str | None:
    """Return why Podgate would not take it as a client's."""
    try:
        return fault_of_leaf(leaf)
    except (UnsupportedAlgorithm, *UNREADABLE):
        return "cannot be read"
