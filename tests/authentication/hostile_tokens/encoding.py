"""Attacks on the encoding: a token has one spelling, three segments of strict base64url."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace

from tests.authentication.hostile_tokens.token_builder import Draft, Hostile, good, make_respelling
from webhook.authentication.reasons import AuthFailure

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_NAMES = ("header", "claims", "signature")


def _case(name: str, change: Callable[[str], str]) -> Hostile:
    return Hostile("encoding", name, AuthFailure.TOKEN_MALFORMED, make_respelling(change))


def _change_segment(position: int, change: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that changes one of the three segments."""

    def change_token(token: str) -> str:
        segments = token.split(".")
        segments[position] = change(segments[position])
        return ".".join(segments)

    return change_token


def _stray(segment: str) -> str:
    """Return another spelling of the same bytes: bits of the last character that are not used."""
    assert len(segment) % 4, "a segment whose last character has no unused bit"
    return segment[:-1] + _ALPHABET[_ALPHABET.index(segment[-1]) + 1]


def _pad(draft: Draft) -> Draft:
    """Make header and claims of lengths that leave unused bits."""
    header = json.dumps(dict(draft.header)).encode()
    claims = json.dumps(dict(draft.claims)).encode()
    return replace(
        draft,
        raw_header=header + b" " * (1 if len(header) % 3 == 0 else 0),
        raw_claims=claims + b" " * (1 if len(claims) % 3 == 0 else 0),
    )


def _general_serialization(token: str) -> str:
    header, claims, signature = token.split(".")
    return json.dumps({"protected": header, "payload": claims, "signature": signature})


CASES = (
    *(
        _case(f"padding after the {name}", _change_segment(place, lambda s: s + "="))
        for place, name in enumerate(_NAMES)
    ),
    *(
        _case(f"more padding after the {name}", _change_segment(place, lambda s: s + "=="))
        for place, name in enumerate(_NAMES)
    ),
    *(_case(f"a + in the {name}", _change_segment(place, lambda s: "+" + s[1:])) for place, name in enumerate(_NAMES)),
    *(_case(f"a / in the {name}", _change_segment(place, lambda s: s[:-1] + "/")) for place, name in enumerate(_NAMES)),
    *(_case(f"an empty {name}", _change_segment(place, lambda _: "")) for place, name in enumerate(_NAMES)),
    *(
        _case(f"a space in the {name}", _change_segment(place, lambda s: s[:5] + " " + s[5:]))
        for place, name in enumerate(_NAMES)
    ),
    *(
        _case(f"a tab in the {name}", _change_segment(place, lambda s: s[:5] + "\t" + s[5:]))
        for place, name in enumerate(_NAMES)
    ),
    *(
        _case(f"a letter too many in the {name}", _change_segment(place, lambda s: s + "A" * (5 - len(s) % 4)))
        for place, name in enumerate(_NAMES)
    ),
    *(
        Hostile(
            "encoding",
            f"stray bits in the {name}",
            AuthFailure.TOKEN_MALFORMED,
            make_respelling(_change_segment(place, _stray)),
            lambda: _pad(good()),
        )
        for place, name in enumerate(_NAMES)
    ),
    _case("no signature", lambda token: token.rpartition(".")[0]),
    _case("one segment", lambda token: token.partition(".")[0]),
    _case("four segments", lambda token: token + ".AAAA"),
    _case("five segments, as encrypted ones have", lambda token: token + ".AAAA.AAAA"),
    _case("a dot before it", lambda token: "." + token),
    _case("a dot after it", lambda token: token + "."),
    _case("dots alone", lambda _: ".."),
    _case("no text of a token", lambda _: "x"),
    _case("a space before it", lambda token: " " + token),
    _case("quotes around it", lambda token: f'"{token}"'),
    _case("a comma after it", lambda token: token + ","),
    _case("itself twice", lambda token: f"{token},{token}"),
    _case("itself twice with a scheme", lambda token: f"{token}, Bearer {token}"),
    _case("its scheme twice", lambda token: "Bearer " + token),
    _case("percent signs for dots", lambda token: token.replace(".", "%2E")),
    _case("all of it quoted for an address", lambda token: "".join(f"%{ord(letter):02X}" for letter in token)),
    _case("all of it in base64 once more", lambda token: base64.urlsafe_b64encode(token.encode()).decode()),
    _case("JSON instead of the compact form", _general_serialization),
    _case("a letter that only looks like one of the alphabet", lambda token: "е" + token[1:]),  # noqa: RUF001 - the fault
    _case("digits of another script", lambda token: token[:-1] + "٣"),
    _case("a byte that is no text", lambda token: token[:-1] + "\udcff"),
    _case("a NUL after it", lambda token: token + "\0"),
    _case("a line end after it", lambda token: token + "\n"),
    _case("a line end inside", lambda token: token[:20] + "\r\n" + token[20:]),
)
