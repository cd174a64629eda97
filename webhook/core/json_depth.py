"""JSON from outside: the bound of its depth, the same on each release of CPython, and objects that others have written.

The bounds of msgspec and of the standard library are the interpreter's: some hundred levels on one release, some ten
thousand on another. A decoder with types goes no deeper than they do, so only free values need a bound of our own:
docs/design/interpreter.md.
"""

import re
from itertools import chain
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

DEPTH_MAX = 128
"""Levels of lists and mappings. Objects of Kubernetes have some dozen; a common bound of JSON libraries is 128."""
UNREADABLE_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised by msgspec for JSON of another shape, for text that is not UTF-8, and for what is nested too deeply."""
_NESTED = (dict, list)
_STRINGS_AND_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*+)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escapes of a pair of surrogates, or of a lone one, behind escaped backslashes."""
_PAIR, _REPLACED = len(rb"\ud800\udc00"), rb"\ufffd"
_STRING, _OPENING = ord('"'), frozenset(b"[{")

_T = TypeVar("_T")


def bound_depth(value: _T) -> _T:
    """Return a decoded value. RecursionError, as for the interpreter's own bound: it has more than DEPTH_MAX levels."""
    level: list[object] = [value]
    for _ in range(DEPTH_MAX + 1):
        nested = [part for part in level if isinstance(part, _NESTED)]
        if not nested:
            return value
        level = list(chain.from_iterable(part.values() if isinstance(part, dict) else part for part in nested))
    raise RecursionError(f"nested deeper than {DEPTH_MAX} levels")


def decode_foreign(text: bytes | Raw, kind: type[_T]) -> _T:
    """Decode what others have written, such as an object of the API server, as `make_readable` returns it."""
    try:
        return bound_depth(msgspec.json.decode(text, type=kind))
    except msgspec.ValidationError:
        raise
    except UNREADABLE_JSON:
        return msgspec.json.decode(make_readable(bytes(text)), type=kind)


def make_readable(text: bytes) -> bytes:
    """Return JSON text as Go reads it, with U+FFFD for what is no Unicode, and without what is below DEPTH_MAX levels.

    An API server stores managedFields and other raw values as they come. They must hide nothing that is read.
    """
    text = text.decode(errors="replace").encode()
    return drop_deep(_SURROGATES.sub(_replace_lone, text))


def _replace_lone(found: re.Match[bytes]) -> bytes:
    return found[0] if len(found[2]) == _PAIR else found[1] + _REPLACED


def drop_deep(text: bytes) -> bytes:
    """Return JSON text with null in the place of lists and mappings below DEPTH_MAX levels."""
    kept, depth, begun = list[bytes](), 0, 0
    for found in _STRINGS_AND_BRACKETS.finditer(text):
        character = text[found.start()]
        if character == _STRING:
            continue
        if character in _OPENING:
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept.append(text[begun : found.start()])
        else:
            if depth == DEPTH_MAX + 1:
                kept.append(b"null")
                begun = found.end()
            depth -= 1
    if depth > DEPTH_MAX:  # it is cut off
        return text
    return b"".join((*kept, text[begun:]))


class BoundedDecoder(Generic[_T]):
    """A decoder of free values, whose depth is bounded."""

    def __init__(self, kind: type[_T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, raw: bytes | Raw, /) -> _T:
        return bound_depth(self._decoder.decode(raw))
