"""Attacks on the header: embedded keys, extensions, other token types, ambiguous JSON."""

from collections.abc import Callable

from tests.authentication.hostile_tokens.token_builder import STRANGER, Draft, Hostile, key, raw_header
from tests.harness.nesting import TOO_DEEP
from webhook.authentication.reasons import AuthFailure

_SURPLUS: dict[str, dict[str, object]] = {
    "a key": {"jwk": key(STRANGER).jwk()},
    "a key's address": {"jku": "https://attacker.example/jwks.json"},
    "a certificate": {"x5c": ["AAAA"]},
    "a certificate's address": {"x5u": "https://attacker.example/x.pem"},
    "a certificate's SHA-256": {"x5t#S256": "AAAA"},
    "an extension that must be understood": {"crit": ["b64"], "b64": True},
    "extensions, none": {"crit": []},
    "an extension nobody knows": {"crit": ["x"], "x": 1},
    "an unencoded payload": {"b64": False},
    "b64 as it is anyway": {"b64": True},
    "compression": {"zip": "DEF"},
    "a nested token": {"cty": "JWT"},
    "a cipher": {"enc": "A256GCM"},
    "a cipher's key": {"epk": key(STRANGER).jwk()},
    "rounds of a password's": {"p2c": 2**31, "p2s": "AAAA"},
    "an initialization vector": {"iv": "AAAA", "tag": "AAAA"},
    "a nonce": {"nonce": "x"},
    "an address": {"url": "https://attacker.example/"},
    "alg in another case": {"Alg": "none"},
    "kid in another case": {"KID": "x"},
    "claims": {"iss": "kube-apiserver"},
    "an empty name": {"": 1},
    "a prototype": {"__proto__": {}},
}
_TYPES: tuple[object, ...] = (
    "logout+jwt",
    "secevent+jwt",
    "dpop+jwt",
    "JOSE",
    "JWE",
    "id_token",
    "",
    " JWT",
    "JWT ",
    None,
    7,
    True,
    ["JWT"],
    {},
)


def _typ(value: object) -> Callable[[Draft], Draft]:
    return lambda draft: draft.set_header(typ=value)


def _set_members(members: dict[str, object]) -> Callable[[Draft], Draft]:
    return lambda draft: draft.set_header(**members)


def _make_malformed(name: str, change: Callable[[bytes], bytes]) -> Hostile:
    return Hostile("header", name, AuthFailure.TOKEN_MALFORMED, raw_header(change))


def _member(text: str) -> Callable[[bytes], bytes]:
    """Return a function that inserts a member at the front."""
    return lambda header: b"{" + text.encode() + b", " + header[1:]


CASES = (
    *(Hostile("header", name, AuthFailure.HEADER, _set_members(members)) for name, members in _SURPLUS.items()),
    *(Hostile("header", f"typ is {typ!r}", AuthFailure.HEADER, _typ(typ)) for typ in _TYPES),
    Hostile("header", "no member", AuthFailure.ALGORITHM, raw_header(lambda _: b"{}")),
    _make_malformed("alg twice", _member('"alg": "none"')),
    _make_malformed("kid twice", _member('"kid": "x"')),
    _make_malformed("typ twice", _member('"typ": "JWT"')),
    _make_malformed("alg twice, once with an escape", _member('"\\u0061lg": "none"')),
    _make_malformed("a name twice, deep inside", _member('"x5t": {"a": 1, "a": 2}')),
    _make_malformed("a list", lambda header: b"[" + header + b"]"),
    _make_malformed("a text", lambda _: b'"ES256"'),
    _make_malformed("a number", lambda _: b"7"),
    _make_malformed("null", lambda _: b"null"),
    _make_malformed("no JSON", lambda _: b"alg=ES256"),
    _make_malformed("quotes of another kind", lambda header: header.replace(b'"', b"'")),
    _make_malformed("something after it", lambda header: header + b"{}"),
    _make_malformed("a comma too many", lambda header: header[:-1] + b",}"),
    _make_malformed("a comment", lambda header: b"/* */" + header),
    _make_malformed("cut off", lambda header: header[:-1]),
    _make_malformed("a NUL after it", lambda header: header + b"\0"),
    _make_malformed("a byte order mark", lambda header: b"\xef\xbb\xbf" + header),
    _make_malformed("UTF-16", lambda header: header.decode().encode("utf-16")),
    _make_malformed("bytes that are no UTF-8", lambda header: b'{"x5t": "\xff", ' + header[1:]),
    _make_malformed("a lone surrogate", _member('"x5t": "\\ud800"')),
    _make_malformed("NaN", _member('"x5t": NaN')),
    _make_malformed("Infinity", _member('"x5t": -Infinity')),
    _make_malformed("a raw control character", _member('"x5t": "\n"')),
    _make_malformed("nested and cut off", lambda _: b"[" * 1000),
    _make_malformed("deeply nested", _member(f'"x5t": {TOO_DEEP}')),
)
