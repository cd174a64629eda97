"""An issuer of tokens whose keys change, without I/O: from what is kept, what is published and the time, to a step.

Whoever verifies reads the key set late, and whoever calls reads the token late. So a key is published before it signs,
signs only when everybody has had the time to read that, and leaves the key set when the last token that it has signed
has expired. In the set every key names its issuer: where one does, a verifier takes no other for that issuer. After
each step everything is looked at anew; nothing is remembered that is not written down.

    adopt     a key that nobody remembers, but whose token is in use
    make      a key, when the one that signs is old
    publish   exactly the keys that are kept; one that was missing and has not signed yet settles anew
    mark      a key as read back from the key set
    sign      a token, with the newest key that has settled
    drop      a key, once the last token that it has signed has expired
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import jwt

from certs.tokens.issuer import sign
from certs.tokens.signing_keys import Keys, SigningKey, made, set_of

_SETTLE_SECONDS_MAX = 300
"""A mounted ConfigMap is newer within two minutes, the server's look at it within seconds; the rest is for mishaps."""
_SETTLE_SHARE, _RENEWALS = 4, 10
_SLACK_SECONDS = 120
"""Clocks differ, and a verifier may forgive an expired token half a minute."""
_AHEAD_SECONDS_MAX = 5
"""So far ahead of us a token may have been issued: verifiers refuse what is from the future."""
_MADE_AHEAD_SECONDS_MAX = 3600


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who issues to whom, and how long tokens and keys live."""

    issuer: str
    audience: str
    subject: str
    client_id: str | None
    token_seconds: int
    key_seconds: int

    @property
    def every_seconds(self) -> int:
        """How old a token becomes at most: a tenth of its life, so that nine late looks do no harm."""
        return max(1, self.token_seconds // _RENEWALS)

    @property
    def settle_seconds(self) -> int:
        """How long a key is published before it signs."""
        return min(_SETTLE_SECONDS_MAX, self.key_seconds // _SETTLE_SHARE)

    def mistake(self) -> str:
        """Say why no rotation can go well with these, "" where it can."""
        if self.key_seconds < self.token_seconds:
            return f"a key that signs for {self.key_seconds} s does not outlive its tokens of {self.token_seconds} s"
        return ""

    def claims(self, now: int) -> dict[str, Any]:
        named = {"client_id": self.client_id} if self.client_id is not None else {}
        lives = {"iat": now, "exp": now + self.token_seconds, "jti": str(uuid.uuid4())}
        return {"iss": self.issuer, "aud": self.audience, "sub": self.subject, **named, **lives}


@dataclass(frozen=True, slots=True)
class View:
    """All that a decision is made from."""

    keys: Keys
    published: tuple[Mapping[str, Any], ...]
    """The key set as it was read back."""
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Writes:
    """What a step changes, to be written in this order; None: as it is."""

    text: str
    """For people."""
    keys: Keys | None = None
    key_set: str | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Current:
    """The token in use: which key has signed it, and what it says; `iss`, `iat` and `exp` are what they should be."""

    kid: str
    claims: Mapping[str, Any]


Step: TypeAlias = Writes | None


def next_step(view: View, issuer: Issuer, now: int) -> Step:
    """Return what is due, most urgent first; None where all is as it should be."""
    current = _in_use(view)
    return (
        _adopted(view, current, now)
        or _made(view, issuer, now)
        or _published(view)
        or _marked(view, now)
        or _signed(view, current, issuer, now)
        or _dropped(view, current, now)
    )


def _adopted(view: View, current: _Current | None, now: int) -> Step:
    if current is None or current.kid in {one.kid for one in view.keys} or current.claims["exp"] <= now:
        return None
    jwk = next(one for one in view.published if one.get("kid") == current.kid)
    adopted = SigningKey({**jwk, "iss": current.claims["iss"]}, None, now, now, current.claims["exp"])
    return Writes(f"adopted key {current.kid}: it has signed the token in use", (adopted, *view.keys))


def _made(view: View, issuer: Issuer, now: int) -> Step:
    newest = view.keys[-1] if view.keys and view.keys[-1].key is not None else None
    is_new = newest is not None and -_MADE_AHEAD_SECONDS_MAX <= now - newest.made_at < issuer.key_seconds
    if is_new and newest is not None and newest.issuer == issuer.issuer:
        return None
    one = made(now, issuer.issuer)
    return Writes(f"made key {one.kid}", (*view.keys, one))


def _published(view: View) -> Step:
    if sorted(map(_row, view.published)) == sorted(_row(one.jwk) for one in view.keys):
        return None
    # Whoever reads late reads what stood there: a key that was missing, and has not signed yet, begins to settle anew.
    keys = tuple(
        one if one.is_signing or one.jwk in view.published else replace(one, published_at=None) for one in view.keys
    )
    return Writes(f"published {len(keys)} key(s)", keys if keys != view.keys else None, set_of(keys))


def _marked(view: View, now: int) -> Step:
    """All are published: that comes before this."""
    for one in view.keys:
        if one.published_at is None:
            return Writes(f"key {one.kid} is published", _changed(view.keys, one, replace(one, published_at=now)))
    return None


def _signed(view: View, current: _Current | None, issuer: Issuer, now: int) -> Step:
    reason = _due(current, issuer, now)
    able = [one for one in view.keys if one.key is not None and one.issuer == issuer.issuer]
    settled = [one for one in able if one.is_signing or now - (one.published_at or now) >= issuer.settle_seconds]
    # Where no token is in use there is nothing to lose: a first key need not have settled.
    signers = settled or ([] if current is not None and reason != _EXPIRED else able)
    if not reason or not signers:
        return None
    signer = signers[-1]
    claims = issuer.claims(now)
    at = view.keys.index(signer)
    signing = replace(signer, tokens_end=max(signer.tokens_end or 0, claims["exp"]))
    keys = (*(replace(older, key=None) for older in view.keys[:at]), signing, *view.keys[at + 1 :])
    if signer.key is None:
        raise LookupError("who is able to sign has a key")
    return Writes(
        f"signed a token with key {signer.kid}: {reason}", keys, token=sign(signer.key, claims, kid=signer.kid)
    )


def _dropped(view: View, current: _Current | None, now: int) -> Step:
    last = max((at for at, one in enumerate(view.keys) if one.is_signing), default=0)
    for one in view.keys[:last]:
        is_over = one.tokens_end is None or one.tokens_end + _SLACK_SECONDS <= now
        if is_over and (current is None or current.kid != one.kid):
            return Writes(f"dropped key {one.kid}: all that it signed has expired", _changed(view.keys, one, None))
    return None


_EXPIRED = "the one in use has expired"


def _due(current: _Current | None, issuer: Issuer, now: int) -> str:
    """Say why a new token is due, "" where none is."""
    if current is None:
        return "there is none that verifies"
    claims, wanted = current.claims, issuer.claims(now)
    if claims["exp"] <= now:
        return _EXPIRED
    if any(claims.get(name) != wanted.get(name) for name in ("iss", "aud", "sub", "client_id")):
        return "the one in use was issued for another purpose"
    if not -_AHEAD_SECONDS_MAX <= now - claims["iat"] < issuer.every_seconds:
        return "its time has come"
    if claims["exp"] - claims["iat"] != issuer.token_seconds:
        return "tokens live for another time now"
    return ""


def _in_use(view: View) -> _Current | None:
    """Return what the token in use says, if a key that is kept or published has signed it."""
    if view.token is None:
        return None
    try:
        kid = jwt.get_unverified_header(view.token)["kid"]
        everywhere = (*(key.jwk for key in view.keys), *view.published)
        key = jwt.PyJWK(dict(next(one for one in everywhere if one.get("kid") == kid)))
        only = {"verify_exp": False, "verify_aud": False, "verify_iat": False, "require": ["exp", "iat"]}
        claims = jwt.decode(view.token, key, algorithms=[key.algorithm_name], options=only)  # type: ignore[arg-type]  # a TypedDict
        moments = {name: int(claims[name]) for name in ("iat", "exp")}
    except (jwt.PyJWTError, KeyError, StopIteration, ValueError, TypeError, OverflowError):
        return None
    return _Current(kid, {**claims, **moments}) if isinstance(claims.get("iss"), str) else None


def _row(jwk: Mapping[str, Any]) -> str:
    return json.dumps(jwk, sort_keys=True)


def _changed(keys: Keys, former: SigningKey, now: SigningKey | None) -> Keys:
    return tuple(one if one is not former else now for one in keys if one is not former or now is not None)  # type: ignore[misc]  # None is left out
