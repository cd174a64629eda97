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
    "the public key, PEM": lambda draft: draft.signer.key.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    ),
    "the public key, DER": lambda draft: draft.signer.key.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ),
    "the public key, JWK": lambda draft: json.dumps(draft.signer.jwk()).encode(),
    "the kid": lambda draft: draft.signer.kid.encode(),
    "nothing": lambda _draft: b"",
}


def _set_alg(algorithm: object) -> Callable[[Draft], Draft]:
    return lambda draft: draft.set_header(alg=algorithm)


def _sign_with_secret(secret: Callable[[Draft], bytes], algorithm: str = "HS256") -> Callable[[Draft], Draft]:
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]

    def sign_draft(draft: Draft) -> Draft:
        named = draft.set_header(alg=algorithm)
        return replace(named, sign=lambda unsigned: hmac.digest(secret(draft), unsigned, digest))

    return sign_draft


def _sign_with(algorithm: str) -> Callable[[Draft], Draft]:
    """Name another algorithm of the same kind of key, and sign with it."""

    def sign_draft(draft: Draft) -> Draft:
        signing = jwt.get_algorithm_by_name(algorithm)
        return replace(draft.set_header(alg=algorithm), sign=lambda unsigned: signing.sign(unsigned, draft.signer.key))

    return sign_draft


def _sign_on_large_curve(draft: Draft) -> Draft:
    signing = jwt.get_algorithm_by_name("ES384")
    return replace(draft.set_header(alg="ES384"), sign=lambda unsigned: signing.sign(unsigned, large_curve()))


def _remove_signature(draft: Draft) -> Draft:
    return replace(draft.set_header(alg="none"), sign=lambda _: b"")


def _case(name: str, fault: Callable[[Draft], Draft], make_good: Callable[[], Draft] = good) -> Hostile:
    return Hostile("algorithm", name, AuthFailure.ALGORITHM, fault, make_good)


def _good(name: str) -> Callable[[], Draft]:
    return lambda: good(name)


CASES = (
    Hostile("algorithm", "none, and no signature", AuthFailure.TOKEN_MALFORMED, _remove_signature),
    *(_case(f"{name!r} with a signature", _set_alg(name)) for name in ("none", "None", "NONE", "nOnE")),
    *(_case(f"alg is {value!r}", _set_alg(value)) for value in (None, 256, True, [], ["ES256"], {"ES256": 1}, "")),
    *(_case(f"alg is {value!r}", _set_alg(value)) for value in ("es256", "ES256 ", "ES256\0", "ES256,none", "ES256K")),
    _case("no alg", lambda draft: draft.header_without("alg")),
    *(_case(f"HS256 with {name}", _sign_with_secret(secret)) for name, secret in _SECRETS.items()),
    _case("HS256 with an RSA key's PEM", _sign_with_secret(_SECRETS["the public key, PEM"]), _good("RS256")),
    _case("HS384 with the public key", _sign_with_secret(_SECRETS["the public key, PEM"], "HS384")),
    _case("HS512 with the public key", _sign_with_secret(_SECRETS["the public key, PEM"], "HS512")),
    *(_case(f"{name} named for an EC key", _set_alg(name)) for name in ("RS256", "PS256", "EdDSA")),
    *(_case(f"{name} named for an RSA key", _set_alg(name), _good("RS256")) for name in ("ES256", "EdDSA", "PS256")),
    *(_case(f"{name} named for an Ed25519 key", _set_alg(name), _good("EdDSA")) for name in ("ES256", "RS256")),
    _case("PS256 of a key that is for RS256", _sign_with("PS256"), _good("RS256")),
    _case("RS256 of a key that is for PS256", _sign_with("RS256"), _good("PS256")),
    *(
        _case(f"{name} of an RSA key", _sign_with(name), _good("RS256"))
        for name in ("RS384", "RS512", "PS384", "PS512")
    ),
    _case("ES384, really", _sign_on_large_curve),
    *(_case(f"{name}, a cipher's", _set_alg(name)) for name in ("dir", "RSA-OAEP", "RSA1_5", "ECDH-ES", "A256GCMKW")),
    _case("PBES2, whose rounds the sender chooses", _set_alg("PBES2-HS256+A128KW")),
    _case("Ed25519 by its newer name", _set_alg("Ed25519"), _good("EdDSA")),
)
