"""Strict JWKS parser: public signing keys, each bound to one algorithm, and the faults of rejected keys."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from webhook.authentication.certificates.weak_rsa_keys import RSA_BITS_MIN, find_weakness
from webhook.core.document.yaml.document_kind import NOT_SHOWN
from webhook.core.json_depth import bound_depth
from webhook.errors import UserError
from webhook.ports import TokenKey

KID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
REMEDY = "publish public signing keys only, such as `podgate token jwks` writes"
_KEYS_MAX = 128
_RSA_BITS_MAX = 8192
"""Verifying one token with a longer key would take milliseconds."""
_ISSUER_LENGTH_MAX = 512
_SHOWN_CHARACTERS_MAX = 66
"""A quoted kid of 64 characters, such as a SHA-256 thumbprint in hexadecimal."""
_PRIVATE_MEMBERS = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
# One algorithm per key, so that a token cannot choose; the first one if the key names none.
_ALGORITHMS = {"EC": ("ES256",), "RSA": ("RS256", "PS256"), "OKP": ("EdDSA",)}


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys by kid, and the faults of rejected keys, one line each."""

    keys: Mapping[str, TokenKey]
    faults: tuple[str, ...]


def read_key_set(content: bytes, name: str, issuer: str | None = None, *, may_bind: bool = False) -> KeySet:
    """Parse a key set, called `name` in errors; UserError if it is not one.

    `issuer` is the issuer whose tokens these keys verify. If the set `may_bind`, a key may name its own issuer in the
    member `iss`; sets published for many issuers must not claim an issuer of another set.
    """
    try:
        document = bound_depth(json.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not JSON: {error}", REMEDY) from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not 0 < len(entries) <= _KEYS_MAX:
        raise UserError(f'{name}: "keys" must be a list of 1 to {_KEYS_MAX} keys', REMEDY)
    keys: dict[str, TokenKey] = {}
    twice: set[str] = set()
    faults = []
    for position, entry in enumerate(entries):
        try:
            key = _parse_key(entry, _read_issuer(entry) if may_bind else issuer)
            if key.kid in keys:
                twice.add(key.kid)
                raise ValueError(f"the kid {key.kid!r} is used twice")  # noqa: TRY301 - one handler adds the position
            keys[key.kid] = key
        except ValueError as error:
            kid = entry.get("kid") if isinstance(entry, dict) else None
            faults.append(f"{name}: keys[{position}] (kid {_quote(kid)}): {error}")
    # Two keys with the same kid are ambiguous: both are rejected.
    return KeySet({kid: key for kid, key in keys.items() if kid not in twice}, tuple(faults))


def list_issuers(keys: Mapping[str, TokenKey]) -> set[str]:
    """Return the issuers that these keys are bound to."""
    return {key.issuer for key in keys.values() if key.issuer is not None}


def _parse_key(entry: Any, issuer: str | None) -> TokenKey:
    if not isinstance(entry, dict):
        raise ValueError("must be an object")  # noqa: TRY004 - a document's fault
    kid, kty, algorithm = entry.get("kid"), entry.get("kty"), entry.get("alg")
    if not isinstance(kid, str) or not KID.fullmatch(kid):
        raise ValueError("kid must be a text of 1 to 128 letters, digits and ._~:/+=@-")
    if kty not in ("EC", "RSA", "OKP"):
        raise ValueError(f"kty is {_quote(kty)}: must be EC, RSA or OKP (shared secrets are not accepted)")
    if private := [member for member in _PRIVATE_MEMBERS if member in entry]:
        raise ValueError(f"holds private key material ({', '.join(private)}): this key is compromised, make a new one")
    if entry.get("use", "sig") != "sig":
        raise ValueError(f"use is {_quote(entry['use'])}: must be sig")
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise ValueError(f"key_ops is {_quote(entry['key_ops'])}: must contain verify")
    fits = _ALGORITHMS[kty]
    if algorithm is not None and algorithm not in fits:
        raise ValueError(f"alg is {_quote(algorithm)}: a key of kty {kty} verifies {' or '.join(fits)}")
    bound = algorithm or fits[0]
    try:
        key = jwt.PyJWK(entry, bound).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"no usable {kty} key: {error}") from None
    _check_strength(key)
    return TokenKey(kid, bound, key, issuer)


def _quote(value: Any) -> str:
    """Return a member as quoted in its fault; a long value is hidden, since it may be a secret."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else NOT_SHOWN


def _read_issuer(entry: Any) -> str | None:
    if not isinstance(entry, dict) or "iss" not in entry:
        return None
    issuer = entry["iss"]
    if not isinstance(issuer, str) or not 0 < len(issuer) <= _ISSUER_LENGTH_MAX:
        raise ValueError(f"iss is {_quote(issuer)}: must name the issuer whose tokens the key signs")
    return issuer


def _check_strength(key: object) -> None:
    match key:
        case ec.EllipticCurvePublicKey() if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"the curve is {key.curve.name}: must be P-256")
        case rsa.RSAPublicKey() if not RSA_BITS_MIN <= key.key_size <= _RSA_BITS_MAX:
            raise ValueError(f"{key.key_size} bits: an RSA key must have {RSA_BITS_MIN} to {_RSA_BITS_MAX}")
        case rsa.RSAPublicKey() if (weak := find_weakness(key)) is not None:
            raise ValueError(f"{weak}: make a new one")
        case ec.EllipticCurvePublicKey() | rsa.RSAPublicKey() | ed25519.Ed25519PublicKey():
            return
    raise ValueError(f"{type(key).__name__} is not accepted: use P-256, RSA or Ed25519")
