"""Tokens: none is accepted that PyJWT refuses, and the claims are those that PyJWT reads.

An input is a token, or a header and claims to be signed. The first byte says which; of the others that follow it one
chooses the key, and three a byte of the finished token to change.
"""

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from certs.token_issuer import PrivateKey
from tests.authentication.hostile_tokens.token_builder import Source
from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message, read_strict_json
from tests.harness.identity import Signer, segment
from webhook.authentication.jwt import LEEWAY_SECONDS_MAX, Claims, TokenRules, verify
from webhook.authentication.published_keys import JwksUnion
from webhook.errors import AuthenticationError

FORM = Form.JSON
NOW = 1_800_000_000
_LEEWAY, _LIFETIME = 10, 3600
_ISSUERS = ("kube-apiserver", "cluster")
_AUDIENCE = "podgate"
_KEYS: tuple[tuple[str, str, PrivateKey], ...] = (
    ("ec", "ES256", ec.derive_private_key(1_234_567, ec.SECP256R1())),
    ("edwards", "EdDSA", ed25519.Ed25519PrivateKey.from_private_bytes(b"podgate, a key that fuzzing uses")),
    ("cluster", "ES256", ec.derive_private_key(7_654_321, ec.SECP256R1())),
)
_SIGNERS = tuple(Signer(algorithm, kid=kid, key=key) for kid, algorithm, key in _KEYS)
WORDS = (
    *("alg", "kid", "typ", "ES256", "EdDSA", "RS256", "HS256", "none", "ec", "edwards", "JWT", "at+jwt", "crit", "b64"),
    *("iss", "aud", "sub", "jti", "exp", "iat", "nbf", "cnf", *_ISSUERS, _AUDIENCE, f"{NOW}", f"{NOW + 60}", "true"),
)
PREFIX_BYTES = 5
_SIGNED = 1


def _open_keys() -> JwksUnion:
    own, cluster = Source("own"), Source("cluster", "cluster")
    own.publish(*(signer.jwk() for signer in _SIGNERS[:2]))
    cluster.publish(_SIGNERS[2].jwk())
    return JwksUnion([own, cluster])


_keys = _open_keys()
_RULES = TokenRules(frozenset(_ISSUERS), frozenset({_AUDIENCE}), _LIFETIME, _LEEWAY)


def list_seeds() -> list[bytes]:
    claims = {"iss": "kube-apiserver", "aud": _AUDIENCE, "sub": "a", "jti": "1", "iat": NOW - 60, "exp": NOW + 60}
    seeds = []
    for number, (kid, algorithm, _) in enumerate(_KEYS):
        header = {"alg": algorithm, "typ": "JWT", "kid": kid}
        own = {**claims, "iss": "cluster", "aud": [_AUDIENCE]} if kid == "cluster" else claims
        seeds += [make_input(number, header, own), make_input(number, header, own, edit=(40, 65))]
        seeds.append(bytes(PREFIX_BYTES) + _sign(number, text(header), text(own)))
    header = {"alg": "ES256", "kid": "ec"}
    more: list[dict[str, Any]] = [
        {**claims, "nbf": NOW - 5},
        {**claims, "exp": NOW - 11},
        {**claims, "iat": NOW + 11},
        {**claims, "aud": ["podgate", "other"]},
        {**claims, "iss": "cluster"},
        {**claims, "exp": NOW + 7200},
    ]
    seeds += [make_input(0, header, each) for each in more]
    headers: list[dict[str, Any]] = [
        {**header, "alg": "none"},
        {**header, "crit": ["exp"]},
        {**header, "kid": "edwards"},
    ]
    by_another_key = make_input(2, header, claims)
    return [*seeds, by_another_key, *(make_input(0, each, claims) for each in headers)]


def text(document: Any) -> bytes:
    return json.dumps(document).encode()


def make_input(key: int, header: Any, claims: Any, edit: tuple[int, int] = (0xFFFF, 0)) -> bytes:
    """Return the input for a header and claims, with a place and a byte to write there."""
    return bytes([_SIGNED, key]) + edit[0].to_bytes(2) + bytes([edit[1]]) + text([header, claims])


def check(data: bytes) -> None:
    token = _make_token(data)
    if token is None:
        return
    try:
        claims = verify(token, _keys, _RULES, NOW)
    except AuthenticationError as error:
        assert error.status == 401
        check_message(f"{error.reason}: {error.detail}".encode("ascii", "backslashreplace").decode())
        return
    _check_accepted(token, claims)


def _make_token(data: bytes) -> str | None:
    """Return the token that an input stands for; None if it is neither a text nor parts of a token."""
    rest = data[PREFIX_BYTES:]
    if data[:1] != bytes([_SIGNED]):
        return rest.decode("latin-1")
    parts = _split_parts(rest)
    if parts is None:
        return None
    token = bytearray(_sign(data[1] % len(_SIGNERS), *parts))
    place = int.from_bytes(data[2:4])
    if place < len(token):
        token[place] = data[4]
    return token.decode("latin-1")


def _split_parts(data: bytes) -> tuple[bytes, bytes] | None:
    """Return the bytes of header and claims: as they are in a JSON list, or around a line break."""
    try:
        header, claims = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        header_bytes, _, claims_bytes = data.partition(b"\n")
        return (header_bytes, claims_bytes) if claims_bytes else None
    return text(header), text(claims)


def _sign(key: int, header: bytes, claims: bytes) -> bytes:
    signer = _SIGNERS[key]
    unsigned = f"{segment(header)}.{segment(claims)}".encode()
    signature: bytes = jwt.get_algorithm_by_name(signer.algorithm).sign(unsigned, signer.key)
    return unsigned + b"." + segment(signature).encode()


def _check_accepted(token: str, claims: Claims) -> None:
    """Demand that PyJWT accepts the token, and that its times are valid now."""
    header = jwt.get_unverified_header(token)
    [signer] = [signer for signer in _SIGNERS if signer.kid == header["kid"]]
    assert header["alg"] == signer.algorithm
    assert (claims.issuer == "cluster") is (signer.kid == "cluster")
    # PyJWT judges times by the clock of the machine.
    options: Any = {"require": ["iss", "aud", "sub", "exp", "iat"], "verify_exp": False, "verify_iat": False}
    read = jwt.decode(
        token,
        signer.key.public_key(),
        algorithms=[signer.algorithm],
        audience=_AUDIENCE,
        issuer=_ISSUERS,
        options={**options, "verify_nbf": False},
    )
    assert read == claims.everything
    payload = jwt.utils.base64url_decode(token.split(".")[1])
    assert read_strict_json(payload) == read
    names = (read["iss"], _AUDIENCE, read["sub"], read.get("jti"), read["exp"])
    assert (claims.issuer, claims.audience, claims.subject, claims.jti, claims.expires_at_seconds) == names
    assert read["exp"] > NOW - _LEEWAY
    assert max(read["iat"], read.get("nbf", 0)) <= NOW + _LEEWAY <= NOW + LEEWAY_SECONDS_MAX
    assert 0 < read["exp"] - read["iat"] <= _LIFETIME
