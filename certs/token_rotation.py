"""Token key rotation: the step that is due for the stored keys, the published key set and the time, without I/O.

Verifiers read the key set late, and callers read the token late. So a key is published before it signs, signs only
after all verifiers have had time to read it, and leaves the key set when the last token that it signed has expired. In
the set every key names its issuer: a verifier then accepts no other key for that issuer. After each step the state is
read again; all state is in the store.

    adopt     a key that is missing from the stored keys, but whose token is in use
    make      a key, when the one that signs is old
    publish   exactly the stored keys; one that was missing and has not signed yet settles again
    mark      a key as read back from the key set
    sign      a token, with the newest key that has settled
    drop      a key, once the last token that it has signed has expired
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import jwt

from certs.signing_keys import Keys, SigningKey, build_key_set, make_key
from certs.token_issuer import sign

_SETTLE_SECONDS_MAX = 300
"""A mounted ConfigMap is updated within two minutes, and the server reloads it within seconds; the rest is slack."""
_SETTLE_SHARE, _RENEWALS = 4, 10
_SLACK_SECONDS = 120
"""Clocks differ, and a verifier may accept an expired token for half a minute."""
_AHEAD_SECONDS_MAX = 5
"""Most time that a token may have been issued ahead of the local clock; verifiers reject tokens from the future."""
_MADE_AHEAD_SECONDS_MAX = 3600


@dataclass(frozen=True, slots=True)
class Issuer:
    """Claims of the tokens, and the lifetimes of tokens and keys."""

    issuer: str
    audience: str
    subject: str
    client_id: str | None
    token_seconds: int
    key_seconds: int

    @property
    def every_seconds(self) -> int:
        """Largest age of a token: a tenth of its lifetime, so that nine missed renewals do no harm."""
        return max(1, self.token_seconds // _RENEWALS)

    @property
    def settle_seconds(self) -> int:
        """Time for which a key is published before it signs."""
        return min(_SETTLE_SECONDS_MAX, self.key_seconds // _SETTLE_SHARE)

    def find_mistake(self) -> str:
        """Return why no rotation is possible with these lifetimes, "" if one is."""
        if self.key_seconds < self.token_seconds:
            return (
                f"a key lifetime of {self.key_seconds} s is shorter than the token lifetime of {self.token_seconds} s"
            )
        return ""

    def build_claims(self, now: int) -> dict[str, Any]:
        named = {"client_id": self.client_id} if self.client_id is not None else {}
        lives = {"iat": now, "exp": now + self.token_seconds, "jti": str(uuid.uuid4())}
        return {"iss": self.issuer, "aud": self.audience, "sub": self.subject, **named, **lives}


@dataclass(frozen=True, slots=True)
class TokenState:
    """The input of a decision."""

    keys: Keys
    published: tuple[Mapping[str, Any], ...]
    """The key set as it was read back."""
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenStep:
    """The changes of one step, to be written in this order; None: unchanged."""

    text: str
    """Description for a person."""
    keys: Keys | None = None
    key_set: str | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Current:
    """The token in use: the key that signed it, and its claims; `iss`, `iat` and `exp` have the right types."""

    kid: str
    claims: Mapping[str, Any]


Step: TypeAlias = TokenStep | None


def find_next_step(state: TokenState, issuer: Issuer, now: int) -> Step:
    """Return the most urgent step that is due, None if there is none."""
    current = _find_current(state)
    return (
        _adopt(state, current, now)
        or _make(state, issuer, now)
        or _publish(state)
        or _mark(state, now)
        or _sign(state, current, issuer, now)
        or _drop(state, current, now)
    )


def _adopt(state: TokenState, current: _Current | None, now: int) -> Step:
    if current is None or current.kid in {key.kid for key in state.keys} or current.claims["exp"] <= now:
        return None
    jwk = next(jwk for jwk in state.published if jwk.get("kid") == current.kid)
    adopted = SigningKey({**jwk, "iss": current.claims["iss"]}, None, now, now, current.claims["exp"])
    return TokenStep(f"adopted key {current.kid}: it has signed the token in use", (adopted, *state.keys))


def _make(state: TokenState, issuer: Issuer, now: int) -> Step:
    newest = state.keys[-1] if state.keys and state.keys[-1].key is not None else None
    is_new = newest is not None and -_MADE_AHEAD_SECONDS_MAX <= now - newest.made_at < issuer.key_seconds
    if is_new and newest is not None and newest.issuer == issuer.issuer:
        return None
    key = make_key(now, issuer.issuer)
    return TokenStep(f"made key {key.kid}", (*state.keys, key))


def _publish(state: TokenState) -> Step:
    if sorted(map(_format_row, state.published)) == sorted(_format_row(key.jwk) for key in state.keys):
        return None
    # A late reader has the former set: a key that was missing from it, and has not signed yet, settles again.
    keys = tuple(
        key if key.is_signing or key.jwk in state.published else replace(key, published_at=None) for key in state.keys
    )
    return TokenStep(f"published {len(keys)} key(s)", keys if keys != state.keys else None, build_key_set(keys))


def _mark(state: TokenState, now: int) -> Step:
    """Mark keys as published: no publication is due, so the key set holds all keys."""
    for key in state.keys:
        if key.published_at is None:
            return TokenStep(
                f"key {key.kid} is published", _replace_key(state.keys, key, replace(key, published_at=now))
            )
    return None


def _sign(state: TokenState, current: _Current | None, issuer: Issuer, now: int) -> Step:
    due = _find_due_reason(current, issuer, now)
    able = [key for key in state.keys if key.key is not None and key.issuer == issuer.issuer]
    settled = [key for key in able if key.is_signing or now - (key.published_at or now) >= issuer.settle_seconds]
    # Without a valid token in use there is nothing to lose: a first key need not have settled.
    signers = settled or ([] if current is not None and due is not _Due.EXPIRED else able)
    if due is None or not signers:
        return None
    signer = signers[-1]
    claims = issuer.build_claims(now)
    at = state.keys.index(signer)
    signing = replace(signer, tokens_end=max(signer.tokens_end or 0, claims["exp"]))
    keys = (*(replace(older, key=None) for older in state.keys[:at]), signing, *state.keys[at + 1 :])
    if signer.key is None:
        raise LookupError("a key that can sign has its private half")
    return TokenStep(
        f"signed a token with key {signer.kid}: {due}", keys, token=sign(signer.key, claims, kid=signer.kid)
    )


def _drop(state: TokenState, current: _Current | None, now: int) -> Step:
    last = max((at for at, key in enumerate(state.keys) if key.is_signing), default=0)
    for key in state.keys[:last]:
        is_over = key.tokens_end is None or key.tokens_end + _SLACK_SECONDS <= now
        if is_over and (current is None or current.kid != key.kid):
            return TokenStep(
                f"dropped key {key.kid}: all that it signed has expired", _replace_key(state.keys, key, None)
            )
    return None


class _Due(StrEnum):
    """Why a new token is due."""

    ABSENT = "no valid token is in use"
    EXPIRED = "the token in use has expired"
    OTHER_CLAIMS = "the token in use has other claims"
    OLD = "the token in use is due for renewal"
    OTHER_LIFETIME = "the token lifetime has changed"


def _find_due_reason(current: _Current | None, issuer: Issuer, now: int) -> _Due | None:
    """Return why a new token is due, None if none is."""
    if current is None:
        return _Due.ABSENT
    claims, wanted = current.claims, issuer.build_claims(now)
    if claims["exp"] <= now:
        return _Due.EXPIRED
    if any(claims.get(name) != wanted.get(name) for name in ("iss", "aud", "sub", "client_id")):
        return _Due.OTHER_CLAIMS
    if not -_AHEAD_SECONDS_MAX <= now - claims["iat"] < issuer.every_seconds:
        return _Due.OLD
    if claims["exp"] - claims["iat"] != issuer.token_seconds:
        return _Due.OTHER_LIFETIME
    return None


def _find_current(state: TokenState) -> _Current | None:
    """Return the claims of the token in use, if a stored or published key has signed it."""
    if state.token is None:
        return None
    try:
        kid = jwt.get_unverified_header(state.token)["kid"]
        everywhere = (*(key.jwk for key in state.keys), *state.published)
        key = jwt.PyJWK(dict(next(jwk for jwk in everywhere if jwk.get("kid") == kid)))
        only = {"verify_exp": False, "verify_aud": False, "verify_iat": False, "require": ["exp", "iat"]}
        claims = jwt.decode(state.token, key, algorithms=[key.algorithm_name], options=only)  # type: ignore[arg-type]  # a TypedDict
        moments = {name: int(claims[name]) for name in ("iat", "exp")}
    except (jwt.PyJWTError, KeyError, StopIteration, ValueError, TypeError, OverflowError, RecursionError):
        return None
    return _Current(kid, {**claims, **moments}) if isinstance(claims.get("iss"), str) else None


def _format_row(jwk: Mapping[str, Any]) -> str:
    return json.dumps(jwk, sort_keys=True)


def _replace_key(keys: Keys, former: SigningKey, now: SigningKey | None) -> Keys:
    replaced = (now if key is former else key for key in keys)
    return tuple(key for key in replaced if key is not None)
