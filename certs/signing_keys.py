"""Signing keys of a token issuer, oldest first, and their JSON form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.errors import CertsError
from certs.token_issuer import PrivateKey, build_jwk, encode_key, format_key_set, new_key

_FIELDS = {"jwk", "key", "madeAt", "publishedAt", "tokensEnd"}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key. Times are in seconds since the Unix epoch, as in tokens."""

    jwk: Mapping[str, Any]
    """Its public half, as the key set shows it. Its `iss` is the only issuer whose tokens it signs."""
    key: PrivateKey | None
    """None once a later key signs: a deleted key cannot be stolen."""
    made_at: int
    published_at: int | None = None
    """When it was first read back from the key set."""
    tokens_end: int | None = None
    """When the last token that it signed expires; None while it has signed none."""

    @property
    def kid(self) -> str:
        return str(self.jwk["kid"])

    @property
    def issuer(self) -> str:
        return str(self.jwk["iss"])

    @property
    def is_signing(self) -> bool:
        return self.tokens_end is not None


Keys = tuple[SigningKey, ...]
"""Oldest first."""


def make_key(now: int, issuer: str) -> SigningKey:
    key = new_key("ES256")
    return SigningKey({**build_jwk(key.public_key()), "iss": issuer}, key, now)


def build_key_set(keys: Keys) -> str:
    """Return the key set (JWKS) of all keys."""
    return format_key_set([dict(key.jwk) for key in keys])


def parse_key_set(text: bytes | None) -> tuple[dict[str, Any], ...]:
    """Return the keys of a key set; none if it cannot be parsed."""
    try:
        rows = json.loads(text or b"{}")["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(rows) if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else ()


def encode(keys: Keys) -> bytes:
    """Return the keys as JSON, with their private halves: a secret."""
    rows = [
        {
            "jwk": dict(key.jwk),
            "key": encode_key(key.key).decode() if key.key is not None else None,
            "madeAt": _format_time(key.made_at),
            "publishedAt": _format_time(key.published_at),
            "tokensEnd": _format_time(key.tokens_end),
        }
        for key in keys
    ]
    return json.dumps({"keys": rows}, indent=1).encode() + b"\n"


def decode(text: bytes, place: str) -> Keys:
    """Parse keys from their JSON form; CertsError, which names `place`, for anything else."""
    try:
        return tuple(_decode_key(row) for row in json.loads(text)["keys"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, CertsError) as error:
        raise CertsError(
            f"{place}: not a list of signing keys ({type(error).__name__})",
            "restore its former content; or delete it, and a new key succeeds the old one",
        ) from None


def _decode_key(row: dict[str, Any]) -> SigningKey:
    jwk, key = row["jwk"], None
    if set(row) != _FIELDS or row["madeAt"] is None or not all(isinstance(jwk[name], str) for name in ("kid", "iss")):
        raise ValueError
    if row["key"] is not None:
        key = cast("PrivateKey", load_pem_private_key(row["key"].encode(), None))
        if {**build_jwk(key.public_key()), "iss": jwk["iss"]} != jwk:
            raise ValueError
    made_at, published_at, tokens_end = (_parse_time(row[name]) for name in ("madeAt", "publishedAt", "tokensEnd"))
    return SigningKey(jwk, key, cast("int", made_at), published_at, tokens_end)


def _format_time(at: int | None) -> str | None:
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _parse_time(text: str | None) -> int | None:
    return None if text is None else int(datetime.fromisoformat(text).timestamp())
