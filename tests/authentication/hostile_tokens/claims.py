"""Attacks on the claims: times, names, missing, of a wrong type, duplicated, invalid JSON."""

from collections.abc import Callable

from tests.authentication.hostile_tokens.token_builder import (
    ACCOUNT,
    CLUSTER,
    LEEWAY,
    LIFETIME,
    NOW,
    Draft,
    Hostile,
    cluster_token,
    good,
    raw_claims,
)
from tests.harness.nesting import TOO_DEEP
from webhook.authentication.reasons import AuthFailure

_DAY = 86_400
_NO_TIME: tuple[object, ...] = (
    None,
    "",
    str(NOW),
    True,
    False,
    -1,
    NOW + 0.5,
    float(NOW),
    1e308,
    2**41,
    [NOW],
    {"s": NOW},
)
_NO_TEXT: tuple[object, ...] = (None, "", 7, True, [], {}, {"a": 1}, "x\n", "x\x00", "\u202ex", "x" * 513)

_NO_AUDIENCE: tuple[object, ...] = (None, "", 7, True, [], {}, [7], [None], [""], [["podgate"]], ["x\n"])


def _claims(**changed: object) -> Callable[[Draft], Draft]:
    return lambda draft: draft.set_claims(**changed)


def _case(
    reason: AuthFailure, name: str, fault: Callable[[Draft], Draft], make_good: Callable[[], Draft] = good
) -> Hostile:
    return Hostile("claims", name, reason, fault, make_good)


def _wrong(name: str, value: object) -> Hostile:
    text = str(value).replace(str(NOW), "NOW")  # a case has the same name in every run
    return _case(AuthFailure.CLAIMS, f"{name} is {text[:20]!r}, {type(value).__name__}", _claims(**{name: value}))


def _omit(name: str) -> Hostile:
    return _case(AuthFailure.CLAIMS, f"no {name}", lambda draft: draft.remove_claims(name))


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Hostile:
    return _case(AuthFailure.CLAIMS, name, raw_claims(change))


def _member(member: str) -> Callable[[bytes], bytes]:
    """Return a function that inserts a member at the front."""
    return lambda claims: b"{" + member.encode() + b", " + claims[1:]


def _mismatch(name: str, **changed: object) -> Hostile:
    return Hostile("claims", name, AuthFailure.IDENTITY_MISMATCH, _claims(**changed), status=403)


def _account(subject: str) -> Hostile:
    fault = _claims(sub=subject)
    return Hostile("claims", f"the subject {subject}", AuthFailure.IDENTITY_MISMATCH, fault, cluster_token, status=403)


_TIMES = (
    _case(AuthFailure.EXPIRED, "expired a second beyond the leeway", _claims(iat=NOW - 600, exp=NOW - LEEWAY)),
    _case(AuthFailure.EXPIRED, "expired long ago", _claims(iat=1, exp=2)),
    _case(AuthFailure.EXPIRED, "expires at zero", _claims(iat=0, exp=0)),
    _case(AuthFailure.NOT_YET_VALID, "issued in the future", _claims(iat=NOW + LEEWAY + 1)),
    _case(AuthFailure.NOT_YET_VALID, "valid from the future on", _claims(nbf=NOW + LEEWAY + 1)),
    _case(AuthFailure.NOT_YET_VALID, "valid from a year that no clock knows", _claims(nbf=2**40)),
    _case(AuthFailure.LIFETIME, "lives a second too long", _claims(iat=NOW - 60, exp=NOW - 60 + _DAY + 1)),
    _case(AuthFailure.LIFETIME, "lives for ever", _claims(exp=2**40)),
    _case(AuthFailure.LIFETIME, "expires as it is issued", _claims(iat=NOW + 5, exp=NOW + 5)),
    _case(AuthFailure.LIFETIME, "expires before it is issued", _claims(iat=NOW + 5, exp=NOW + 4)),
    *(_wrong("exp", value) for value in _NO_TIME),
    *(_wrong("iat", value) for value in _NO_TIME),
    *(_wrong("nbf", value) for value in _NO_TIME),
    _omit("exp"),
    _omit("iat"),
    _bytes("exp of 4000 digits", lambda claims: claims.replace(b'"exp": ', b'"exp": ' + b"9" * 4000)),
    _bytes("exp of 4400 digits", lambda claims: claims.replace(b'"exp": ', b'"exp": ' + b"9" * 4400)),
    _bytes("exp with an exponent", lambda claims: claims.replace(str(NOW + LIFETIME).encode(), b"18e8")),
    _bytes("exp infinite", lambda claims: claims.replace(str(NOW + LIFETIME).encode(), b"Infinity")),
    _bytes("exp no number", lambda claims: claims.replace(str(NOW + LIFETIME).encode(), b"NaN")),
    _bytes("exp with a zero in front", lambda claims: claims.replace(b'"exp": ', b'"exp": 0')),
    _bytes("exp with a plus", lambda claims: claims.replace(b'"exp": ', b'"exp": +')),
    _bytes("exp in hexadecimal", lambda claims: claims.replace(b'"exp": ', b'"exp": 0x')),
)
_NAMES = (
    *(_wrong("iss", value) for value in (*_NO_TEXT, ["kube-apiserver"])),
    *(_wrong("sub", value) for value in (*_NO_TEXT, ["kube-apiserver"])),
    *(_wrong("jti", value) for value in (*_NO_TEXT, ["6b1f"])),
    *(_wrong("aud", value) for value in _NO_AUDIENCE),
    *(_omit(name) for name in ("iss", "sub", "aud")),
    *(
        _case(AuthFailure.ISSUER, f"the issuer {value!r}", _claims(iss=value))
        for value in ("elsewhere", "KUBE-APISERVER", "kube-apiserver/", "kube-apiserver ", "kube-apiservеr")  # noqa: RUF001
    ),
    _case(AuthFailure.ISSUER, "an issuer with a slash more", _claims(iss=CLUSTER + "/"), cluster_token),
    _case(AuthFailure.ISSUER, "an issuer by http", _claims(iss=CLUSTER.replace("https", "http")), cluster_token),
    *(
        _case(AuthFailure.AUDIENCE, f"the audience {value!r}", _claims(aud=value))
        for value in ("vault", "Podgate", "podgate ", "podgat", "podgate.example", ["vault"], "*")
    ),
    *(
        _case(AuthFailure.AUDIENCE, f"audiences {value!r}", _claims(aud=value))
        for value in (["podgate", "vault"], ["vault", "podgate"], ["podgate", "podgate"], ["podgate", ""])
    ),
    *(_mismatch(f"the subject {value!r}", sub=value) for value in ("root", "KUBE-APISERVER", "kube-apiserver-2", "*")),
    *(_account(ACCOUNT.replace("podgate-system", name)) for name in ("default", "podgate-system2", "PODGATE-SYSTEM")),
    _account("system:serviceaccount:podgate-system"),
    _account("x" + ACCOUNT),
    _mismatch("another identity's issuer and subject", iss="prober", sub="prober-1"),
)
_FORM = (
    *(_bytes(f"{name} twice", _member(f'"{name}": "x"')) for name in ("iss", "aud", "sub", "exp", "iat", "nbf", "jti")),
    _bytes("iss twice, once with an escape", _member('"\\u0069ss": "kube-apiserver"')),
    _bytes("a name twice, deep inside", _member('"x": [{"a": 1, "a": 1}]')),
    _bytes("deeply nested", _member(f'"x": {TOO_DEEP}')),
    _bytes("a lone surrogate", _member('"x": "\\ud800"')),
    _bytes("a surrogate of the wrong order", _member('"x": "\\udc00\\ud800"')),
    _bytes("NaN", _member('"x": NaN')),
    _bytes("Infinity", _member('"x": Infinity')),
    _bytes("a raw control character", _member('"x": "\t"')),
    _bytes("UTF-16", lambda claims: claims.decode().encode("utf-16")),
    _bytes("UTF-32", lambda claims: claims.decode().encode("utf-32-le")),
    _bytes("a byte order mark", lambda claims: b"\xef\xbb\xbf" + claims),
    _bytes("bytes that are no UTF-8", lambda claims: claims.replace(b"6b1f", b"\xff\xfe")),
    _bytes("an overlong form of UTF-8", lambda claims: claims.replace(b"6b1f", b"\xc0\xaf")),
    _bytes("a list", lambda claims: b"[" + claims + b"]"),
    _bytes("a text", lambda _: b'"kube-apiserver"'),
    _bytes("a number", lambda _: b"7"),
    _bytes("null", lambda _: b"null"),
    _bytes("no member", lambda _: b"{}"),
    _bytes("no JSON", lambda _: b"iss=kube-apiserver"),
    _bytes("two objects", lambda claims: claims + claims),
    _bytes("cut off", lambda claims: claims[:-1]),
    _bytes("a comma too many", lambda claims: claims[:-1] + b",}"),
    _bytes("a comment", lambda claims: claims + b"// x"),
    _bytes("a NUL after it", lambda claims: claims + b"\0"),
    _bytes("quotes of another kind", lambda claims: claims.replace(b'"', b"'")),
)

CASES = (*_TIMES, *_NAMES, *_FORM)
