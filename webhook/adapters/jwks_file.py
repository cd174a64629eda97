"""The token keys from a JWKS file: strictly checked, read again when it changes, the last good set kept."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from webhook.errors import UserError
from webhook.ports import TokenKey
from webhook.reloading import Reloading

_FILE_BYTES_MAX = 256 * 1024
_KEYS_MAX = 128
_RSA_BITS_MIN = 2048
_KID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
_PRIVATE_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
# One algorithm a key, so that a token cannot choose; the first one where the key names none.
_ALGORITHMS = {"EC": ("ES256",), "RSA": ("RS256", "PS256"), "OKP": ("EdDSA",)}
_REMEDY = "publish public signing keys only, such as `podgate token jwks` writes"


class JwksFile(Reloading[dict[str, TokenKey]]):
    """TokenKeys from a file."""

    def __init__(self, path: Path, on_failure: Callable[[str], None] = lambda _: None) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: parse_key_set(contents[0], str(path)), on_failure)

    def find(self, kid: str) -> TokenKey | None:
        return self.value.get(kid)


def parse_key_set(content: bytes, name: str) -> dict[str, TokenKey]:
    """Return the keys by kid; UserError with every mistake, one a line."""
    try:
        document = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not JSON: {error}", _REMEDY) from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not 0 < len(entries) <= _KEYS_MAX:
        raise UserError(f'{name}: "keys" must be a list of 1 to {_KEYS_MAX} keys', _REMEDY)
    keys: dict[str, TokenKey] = {}
    mistakes = []
    for position, entry in enumerate(entries):
        try:
            key = _key(entry)
            if key.kid in keys:
                raise ValueError(f"the kid {key.kid!r} stands twice")  # noqa: TRY301 - one place says where
            keys[key.kid] = key
        except ValueError as error:
            kid = entry.get("kid") if isinstance(entry, dict) else None
            mistakes.append(f"{name}: keys[{position}] (kid {kid!r}): {error}")
    if mistakes:
        raise UserError("\n".join(mistakes), _REMEDY)
    return keys


def _key(entry: Any) -> TokenKey:
    if not isinstance(entry, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - a document's fault
    kid, kty, algorithm = entry.get("kid"), entry.get("kty"), entry.get("alg")
    if not isinstance(kid, str) or not _KID.fullmatch(kid):
        raise ValueError("kid must be a text of 1 to 128 letters, digits and ._~:/+=@-")
    if kty not in ("EC", "RSA", "OKP"):
        raise ValueError(f"kty is {kty!r}: must be EC, RSA or OKP (shared secrets are not accepted)")
    if private := [member for member in _PRIVATE_MEMBERS if member in entry]:
        raise ValueError(f"holds private key material ({', '.join(private)}): this key is burnt, make a new one")
    if entry.get("use", "sig") != "sig":
        raise ValueError(f"use is {entry['use']!r}: must be sig")
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise ValueError(f"key_ops is {entry['key_ops']!r}: must contain verify")
    fits = _ALGORITHMS[kty]
    if algorithm is not None and algorithm not in fits:
        raise ValueError(f"alg is {algorithm!r}: a key of kty {kty} verifies {' or '.join(fits)}")
    bound = algorithm or fits[0]
    try:
        key = jwt.PyJWK(entry, bound).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"no usable {kty} key: {error}") from None
    _check_strength(key)
    return TokenKey(kid, bound, key)


def _check_strength(key: object) -> None:
    match key:
        case ec.EllipticCurvePublicKey() if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"the curve is {key.curve.name}: must be P-256")
        case rsa.RSAPublicKey() if key.key_size < _RSA_BITS_MIN:
            raise ValueError(f"{key.key_size} bits: an RSA key must have {_RSA_BITS_MIN} or more")
        case ec.EllipticCurvePublicKey() | rsa.RSAPublicKey() | ed25519.Ed25519PublicKey():
            return
    raise ValueError(f"{type(key).__name__} is not accepted: use P-256, RSA or Ed25519")
