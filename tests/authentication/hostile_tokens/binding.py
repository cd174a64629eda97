"""Attacks on the binding of a token to a certificate: missing, unusable, of another certificate."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.authentication.hostile_tokens.token_builder import (
    LEEWAY,
    MINE,
    OTHER,
    PROBER,
    Draft,
    Hostile,
    certificate,
    good,
    make_bound,
    thumbprint,
)
from webhook.authentication.authenticator import TokenLimits
from webhook.authentication.jwt import Binding
from webhook.authentication.reasons import AuthFailure

_NO_BINDING: tuple[object, ...] = (None, {}, [], "", "x", 7, True)
_NO_THUMBPRINT: tuple[object, ...] = (None, "", 7, True, [], {}, "é")
_STRICT = TokenLimits(leeway_seconds=LEEWAY, binding=Binding.REQUIRED)


def _digest() -> bytes:
    return hashlib.sha256(certificate(MINE)).digest()


def _sha1() -> bytes:
    return hashlib.sha1(certificate(MINE)).digest()  # noqa: S324 - must be refused


def _always(value: object) -> Callable[[], object]:
    return lambda: value


def _key_digest() -> str:
    public = x509.load_der_x509_certificate(certificate(MINE)).public_key()
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(encoded).digest()).rstrip(b"=").decode()


def _bind(name: str, make: Callable[[], object]) -> Hostile:
    """Return a case with another value of `cnf`."""

    def set_cnf(draft: Draft) -> Draft:
        return draft.set_claims(cnf=make())

    return Hostile("binding", name, AuthFailure.BINDING, set_cnf, make_bound, status=403)


def _value(name: str, make: Callable[[], object]) -> Hostile:
    return _bind(name, lambda: {"x5t#S256": make()})


CASES = (
    *(_bind(f"cnf is {value!r}", _always(value)) for value in _NO_BINDING),
    _bind("a key's thumbprint instead", lambda: {"jkt": thumbprint(MINE)}),
    _bind("a key itself", lambda: {"jwk": {"kty": "EC"}}),
    _bind("the name in another case", lambda: {"X5T#S256": thumbprint(MINE)}),
    _bind("the name without its hash", lambda: {"x5t": thumbprint(MINE)}),
    _bind("in a list", lambda: [{"x5t#S256": thumbprint(MINE)}]),
    *(_value(f"the thumbprint is {value!r}", _always(value)) for value in _NO_THUMBPRINT),
    _value("another certificate's thumbprint", lambda: thumbprint(OTHER)),
    _value("the thumbprint in a list", lambda: [thumbprint(MINE)]),
    _value("the thumbprint cut", lambda: thumbprint(MINE)[:-1]),
    _value("the thumbprint and more", lambda: thumbprint(MINE) + "A"),
    _value("the thumbprint padded", lambda: thumbprint(MINE) + "="),
    _value("the thumbprint and a space", lambda: thumbprint(MINE) + " "),
    _value("the thumbprint in hexadecimal", lambda: _digest().hex()),
    _value("the thumbprint by SHA-1", lambda: base64.urlsafe_b64encode(_sha1()).decode()),
    _value("the thumbprint of the certificate's key", _key_digest),
    _value("the thumbprint of nothing", lambda: base64.urlsafe_b64encode(hashlib.sha256(b"").digest()).decode()),
    _value("the thumbprint in another case", lambda: thumbprint(MINE).swapcase()),
    Hostile(
        "binding",
        "presented with another certificate of the same name",
        AuthFailure.BINDING,
        lambda d: replace(d, certificate=OTHER),
        make_bound,
        status=403,
    ),
    Hostile(
        "binding",
        "presented with a certificate of another name",
        AuthFailure.BINDING,
        lambda d: replace(d, certificate=PROBER),
        make_bound,
        status=403,
    ),
    Hostile(
        "binding",
        "not bound where a binding is required",
        AuthFailure.BINDING,
        lambda d: d.remove_claims("cnf"),
        make_bound,
        status=403,
        limits=_STRICT,
    ),
    Hostile(
        "binding",
        "not bound, and presented with a certificate of another name",
        AuthFailure.IDENTITY_MISMATCH,
        lambda d: replace(d, certificate=PROBER),
        good,
        status=403,
    ),
)
