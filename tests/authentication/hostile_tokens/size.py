"""Attacks by size: long, deep, many."""

from collections.abc import Callable
from dataclasses import replace

from tests.authentication.hostile_tokens.token_builder import Draft, Hostile, make_respelling, raw_claims, raw_header
from webhook.authentication.reasons import AuthFailure


def _case(reason: AuthFailure, name: str, fault: Callable[[Draft], Draft]) -> Hostile:
    return Hostile("size", name, reason, fault)


def _pad_to(length: int) -> Callable[[Draft], Draft]:
    """Return a fault that pads the token to this length with a claim."""

    def pad_draft(draft: Draft) -> Draft:
        short = len(draft.set_claims(x="").token)
        long_draft = draft.set_claims(x="x" * ((length - short) * 3 // 4))
        while len(long_draft.token) < length:
            long_draft = long_draft.set_claims(x=str(long_draft.claims["x"]) + "x")
        return long_draft

    return pad_draft


def _header_of(length: int) -> Callable[[bytes], bytes]:
    return lambda header: header[:-1] + b" " * (length - len(header)) + b"}"


CASES = (
    *(_case(AuthFailure.TOKEN_MALFORMED, f"{length} characters", _pad_to(length)) for length in (8193, 8200, 12_000)),
    _case(AuthFailure.TOKEN_MALFORMED, "a thousand dots", make_respelling(lambda token: token + "." * 1000)),
    _case(AuthFailure.TOKEN_MALFORMED, "a long signature", lambda d: replace(d, sign=lambda _: b"x" * 8000)),
    _case(AuthFailure.TOKEN_MALFORMED, "a header of 1025 bytes", raw_header(_header_of(1025))),
    _case(AuthFailure.TOKEN_MALFORMED, "a header of 4000 bytes", raw_header(_header_of(4000))),
    _case(AuthFailure.TOKEN_MALFORMED, "a header a thousand deep", raw_header(lambda _: b'{"x5t":' + b"[" * 1000)),
    _case(AuthFailure.TOKEN_MALFORMED, "a kid of 1100 letters", lambda d: d.set_header(kid="k" * 1100)),
    _case(
        AuthFailure.HEADER,
        "a hundred members in the header",
        lambda d: d.set_header(**{f"m{n}": n for n in range(80)}),
    ),
    _case(AuthFailure.CLAIMS, "claims five thousand deep", raw_claims(lambda _: b"[" * 5000)),
    _case(
        AuthFailure.CLAIMS,
        "claims two thousand objects deep",
        raw_claims(lambda _: b'{"":' * 1200 + b"1" + b"}" * 1200),
    ),
    _case(
        AuthFailure.CLAIMS,
        "a claim of 5000 digits",
        raw_claims(lambda claims: b'{"x":' + b"9" * 5000 + b"," + claims[1:]),
    ),
    _case(
        AuthFailure.CLAIMS,
        "a claim of 5000 digits below zero",
        raw_claims(lambda c: b'{"x":-' + b"9" * 5000 + b"," + c[1:]),
    ),
)
