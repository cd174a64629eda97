"""Strict verification of a JWT (RFC 8725) into typed claims: rejects more than PyJWT does."""

import base64
import binascii
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import jwt

from webhook.authentication.jwks import KID
from webhook.authentication.reasons import AuthFailure, refuse
from webhook.core.json_depth import bound_depth
from webhook.errors import AuthenticationError
from webhook.ports import TokenKey, TokenKeys

ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
_TOKEN_BYTES_MAX = 8192
_HEADER_BYTES_MAX = 1024
_TEXT_LENGTH_MAX = 512
"""For iss, aud, sub and jti, which are written to logs and audit annotations."""
_SHOWN_LENGTH_MAX = 80
"""For unverified values of a token that are logged."""
LEEWAY_SECONDS_MAX = 30
_SECONDS_MAX = 2**40  # some 35,000 years: more is an error
# x5t names a certificate and is ignored; identity providers send it.
_HEADER_KEYS = frozenset({"alg", "kid", "typ", "x5t"})
_TYPES = frozenset({"jwt", "application/jwt", "at+jwt", "application/at+jwt"})
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_jws = jwt.PyJWS(algorithms=ALGORITHMS)


class Binding(StrEnum):
    """Enforcement of certificate-bound tokens (`cnf`, RFC 8705)."""

    OFF = "off"
    IF_PRESENT = "if-present"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a verified token. Times are in seconds since the Unix epoch."""

    issuer: str
    audience: str
    subject: str
    jti: str | None
    expires_at_seconds: int
    everything: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements on every token."""

    issuers: Collection[str] | None
    """None: any issuer; the certificate then determines it."""
    audiences: Collection[str]
    lifetime_max_seconds: float
    leeway_seconds: float
    """Permitted clock skew of the issuer."""


class KeyNotFoundError(AuthenticationError):
    """A token with an unknown key, which may become known when the keys are fetched again."""


def verify(token: str, keys: TokenKeys, rules: TokenRules, now_seconds: float) -> Claims:
    """Return the claims of a valid token; AuthenticationError for any other."""
    candidates = _find_candidates(_decode_header(token), keys)
    payload, signers = _verify_signature(token, candidates)
    claims = _parse_object(payload, AuthFailure.CLAIMS)
    expires_at_seconds = _check_times(claims, rules, now_seconds)
    issuer, audience, subject = (_read_text(claims, "iss"), _read_audience(claims), _read_text(claims, "sub"))
    jti = _read_text(claims, "jti") if "jti" in claims else None
    if rules.issuers is not None and issuer not in rules.issuers:
        refuse(AuthFailure.ISSUER, f"iss {issuer!r} is in no identity")
    if audience not in rules.audiences:
        refuse(AuthFailure.AUDIENCE, f"aud {audience!r} is in no identity")
    if not any(keys.may_sign(key, issuer) for key in signers):
        refuse(AuthFailure.KEY_ISSUER, f"kid {signers[0].kid!r} is not valid for iss {issuer!r}")
    return Claims(issuer, audience, subject, jti, expires_at_seconds, claims)


def _decode_header(token: str) -> dict[str, Any]:
    if len(token) > _TOKEN_BYTES_MAX:
        refuse(AuthFailure.TOKEN_MALFORMED, f"{len(token)} characters, at most {_TOKEN_BYTES_MAX}")
    segments = token.split(".")
    if len(segments) != 3:  # noqa: PLR2004 - header, payload, signature
        refuse(AuthFailure.TOKEN_MALFORMED, f"{len(segments)} segments, not 3")
    header, *_ = [_decode_segment(segment) for segment in segments]
    if len(header) > _HEADER_BYTES_MAX:
        refuse(AuthFailure.TOKEN_MALFORMED, f"a header of {len(header)} bytes, at most {_HEADER_BYTES_MAX}")
    return _parse_object(header, AuthFailure.TOKEN_MALFORMED)


def _decode_segment(segment: str) -> bytes:
    """Decode strict base64url: no padding, no other alphabet, no stray bits, so that a token has one encoding."""
    try:
        raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if not _BASE64URL.fullmatch(segment) or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != segment:
        refuse(AuthFailure.TOKEN_MALFORMED, "a segment is not strict base64url")
    return raw


def _find_candidates(header: dict[str, Any], keys: TokenKeys) -> Sequence[TokenKey]:
    """Return the keys that the token may be signed with, at most one per source."""
    if surplus := sorted(header.keys() - _HEADER_KEYS):
        refuse(AuthFailure.HEADER, f"header parameters {_quote(surplus)} are not accepted")
    if str(header.get("typ", "JWT")).lower() not in _TYPES:
        refuse(AuthFailure.HEADER, f"typ {_quote(header['typ'])} is no access token")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        refuse(AuthFailure.ALGORITHM, f"alg {_quote(algorithm)} is not among {', '.join(ALGORITHMS)}")
    if not isinstance(kid, str) or not KID.fullmatch(kid):
        refuse(AuthFailure.UNKNOWN_KEY, f"kid {_quote(kid)} is no key id")
    found = keys.find(kid)
    if not found:
        raise KeyNotFoundError(AuthFailure.UNKNOWN_KEY, f"kid {kid!r} is not in the key set")
    fits = [key for key in found if key.algorithm == algorithm]
    if not fits:
        refuse(AuthFailure.ALGORITHM, f"kid {kid!r} is bound to {found[0].algorithm}, the token says {algorithm}")
    return fits


def _verify_signature(token: str, candidates: Sequence[TokenKey]) -> tuple[bytes, Sequence[TokenKey]]:
    """Return the payload and those keys that verify its signature."""
    signers, payload, fault = [], b"", ""
    for key in candidates:
        try:
            payload = _jws.decode(token, key.key, algorithms=[key.algorithm])  # type: ignore[arg-type]  # the port keeps PyJWT out
            signers.append(key)
        except jwt.InvalidTokenError as error:
            fault = f"kid {key.kid!r}, {key.algorithm}: {error}"
    if not signers:
        refuse(AuthFailure.SIGNATURE, fault)
    return payload, signers


def _parse_object(raw: bytes, reason: AuthFailure) -> dict[str, Any]:
    """Parse a JSON object without ambiguities: UTF-8, unique keys, no NaN, no lone surrogates."""
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_reject_duplicates, parse_constant=_reject_duplicates)
        bound_depth(value)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        refuse(reason, f"not a JSON object: {error}")
    if not isinstance(value, dict):
        refuse(reason, "not a JSON object")
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]] | str) -> dict[str, Any]:
    if isinstance(pairs, str):
        raise ValueError(f"{pairs} is no JSON")  # noqa: TRY004 - a value's fault, as json's own are
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _check_times(claims: dict[str, Any], rules: TokenRules, now_seconds: float) -> int:
    """Check exp, iat and nbf; return exp."""
    expires_at_seconds, issued_at_seconds = _read_seconds(claims, "exp"), _read_seconds(claims, "iat")
    not_before_seconds = _read_seconds(claims, "nbf") if "nbf" in claims else issued_at_seconds
    if expires_at_seconds <= now_seconds - rules.leeway_seconds:
        refuse(AuthFailure.EXPIRED, f"exp {expires_at_seconds} is past")
    for name, value in (("iat", issued_at_seconds), ("nbf", not_before_seconds)):
        if value > now_seconds + rules.leeway_seconds:
            refuse(AuthFailure.NOT_YET_VALID, f"{name} {value} is in the future")
    if not 0 < expires_at_seconds - issued_at_seconds <= rules.lifetime_max_seconds:
        refuse(
            AuthFailure.LIFETIME,
            f"lives {expires_at_seconds - issued_at_seconds} s, at most {rules.lifetime_max_seconds:g}",
        )
    return expires_at_seconds


def _read_seconds(claims: dict[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or not 0 <= value <= _SECONDS_MAX:  # a bool is an int, too
        refuse(AuthFailure.CLAIMS, f"{name} is missing" if value is None else f"{name} is no plausible whole number")
    return value


def _read_text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_LENGTH_MAX or not value.isprintable():
        refuse(
            AuthFailure.CLAIMS, f"{name} is missing" if value is None else f"{name} is no printable text of 1 to 512"
        )
    return value


def _read_audience(claims: dict[str, Any]) -> str:
    """Return the only audience. Kubernetes always writes a list; a token for several could be used elsewhere too."""
    value = claims.get("aud")
    if isinstance(value, list) and value:
        if len(value) > 1:
            refuse(AuthFailure.AUDIENCE, f"{len(value)} audiences, not 1")
        return _read_text({"aud": value[0]}, "aud")
    return _read_text(claims, "aud")


def _quote(value: object) -> str:
    return repr(value)[:_SHOWN_LENGTH_MAX]
