"""Attacks on the algorithm: none, a wrong one, and the public key as an HMAC secret."""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.authentication.hostile_tokens.token_builder import Draft, Hostile, good, large_curve
from webhook.authentication.reasons import AuthFailure

_SECRETS = {
    "the public key, PEM": lambda draft: draft.by.key.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    ),
    "the public key, DER": lambda draft: draft.by.key.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ),
    "the public key, JWK": lambda draft: json.dumps(draft.by.jwk()).encode(),
    "the kid": lambda draft: draft.by.kid.encode(),
    "nothing": lambda _draft: b"",
}


def _named(algorithm: object) -> Callable[[Draft], Draft]:
    return lambda draft: draft.with_header(alg=algorithm)


def _with_secret(secret: Callable[[Draft], bytes], algorithm: str = "HS256") -> Callable[[Draft], Draft]:
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]

    def spoilt(draft: Draft) -> Draft:
        made = draft.with_header(alg=algorithm)
        return replace(made, sign=lambda unsigned: hmac.digest(secret(draft), unsigned, digest))

    return spoilt


def _really(algorithm: str) -> Callable[[Draft], Draft]:
    """Name another algorithm of the same kind of key, and sign with it."""

    def spoilt(draft: Draft) -> Draft:
        maker = jwt.get_algorithm_by_name(algorithm)
        return replace(draft.with_header(alg=algorithm), sign=lambda unsigned: maker.sign(unsigned, draft.by.key))

    return spoilt


def _on_large_curve(draft: Draft) -> Draft:
    maker = jwt.get_algorithm_by_name("ES384")
    return replace(draft.with_header(alg="ES384"), sign=lambda unsigned: maker.sign(unsigned, large_curve()))


def _unsigned(draft: Draft) -> Draft:
    return replace(draft.with_header(alg="none"), sign=lambda _: b"")


def _case(name: str, fault: Callable[[Draft], Draft], of: Callable[[], Draft] = good) -> Hostile:
    return Hostile("algorithm", name, AuthFailure.ALGORITHM, fault, of)


def _of(name: str) -> Callable[[], Draft]:
    return lambda: good(name)


CASES = (
    Hostile("algorithm", "none, and no signature", AuthFailure.TOKEN_MALFORMED, _unsigned),
    *(_case(f"{name!r} with a signature", _named(name)) for name in ("none", "None", "NONE", "nOnE")),
    *(_case(f"alg is {value!r}", _named(value)) for value in (None, 256, True, [], ["ES256"], {"ES256": 1}, "")),
    *(_case(f"alg is {value!r}", _named(value)) for value in ("es256", "ES256 ", "ES256\0", "ES256,none", "ES256K")),
    _case("no alg", lambda draft: draft.header_without("alg")),
    *(_case(f"HS256 with {name}", _with_secret(secret)) for name, secret in _SECRETS.items()),
    _case("HS256 with an RSA key's PEM", _with_secret(_SECRETS["the public key, PEM"]), _of("RS256")),
    _case("HS384 with the public key", _with_secret(_SECRETS["the public key, PEM"], "HS384")),
    _case("HS512 with the public key", _with_secret(_SECRETS["the public key, PEM"], "HS512")),
    *(_case(f"{name} named for an EC key", _named(name)) for name in ("RS256", "PS256", "EdDSA")),
    *(_case(f"{name} named for an RSA key", _named(name), _of("RS256")) for name in ("ES256", "EdDSA", "PS256")),
    *(_case(f"{name} named for an Ed25519 key", _named(name), _of("EdDSA")) for name in ("ES256", "RS256")),
    _case("PS256 of a key that is for RS256", _really("PS256"), _of("RS256")),
    _case("RS256 of a key that is for PS256", _really("RS256"), _of("PS256")),
    *(_case(f"{name} of an RSA key", _really(name), _of("RS256")) for name in ("RS384", "RS512", "PS384", "PS512")),
    _case("ES384, really", _on_large_curve),
    *(_case(f"{name}, a cipher's", _named(name)) for name in ("dir", "RSA-OAEP", "RSA1_5", "ECDH-ES", "A256GCMKW")),
    _case("PBES2, whose rounds the sender chooses", _named("PBES2-HS256+A128KW")),
    _case("Ed25519 by its newer name", _named("Ed25519"), _of("EdDSA")),
)
