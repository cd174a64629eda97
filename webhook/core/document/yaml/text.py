"""Text of a document: decoding of its bytes, text that is not YAML, and surrogate pairs of JSON.

YAML does not know surrogate pairs: each half becomes the escape, of the same length, of a private-use character.
"""

import json
import re

from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem, format_value
from webhook.core.document.yaml.syntax_errors import LINE_END, SyntaxProblem

_PAIR = re.compile(r"\\\\|\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")
_REPLACED = re.compile("([\ue000-\ue3ff])([\ue400-\ue7ff])")


def replace_surrogate_pairs(text: str) -> str | None:
    """Return a JSON text with its surrogate pairs replaced; None if it is not JSON, or has no pairs."""
    if not any(found[1] for found in _PAIR.finditer(text)):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _PAIR.sub(_replace_pair, text)


def restore_surrogate_pairs(text: str) -> str:
    """Return a text with the characters that the replaced pairs stand for."""
    return _REPLACED.sub(lambda found: chr(0x10000 + ((ord(found[1]) - 0xE000) << 10) + ord(found[2]) - 0xE400), text)


def _replace_pair(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]  # an escaped backslash
    high, low = int(f"d{found[1]}", 16), int(f"d{found[2]}", 16)
    return f"\\u{high - 0xD800 + 0xE000:04x}\\u{low - 0xDC00 + 0xE400:04x}"


DOCUMENT_BYTES_MAX = 1 << 20  # the maximum size of a ConfigMap

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def decode_text(raw: bytes) -> str:
    """Return the text. DocumentError: too long, not UTF-8, or with characters that YAML forbids."""
    if len(raw) > DOCUMENT_BYTES_MAX:
        reason = f"{len(raw)} bytes, and a document holds at most {DOCUMENT_BYTES_MAX} (1 MiB)"
        raise DocumentError([Problem(1, 1, DOCUMENT, "(text)", reason, "split it, or use `defaults` for what repeats")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        value = f"0x{raw[error.start]:02x}"
        raise DocumentError([_build_problem(before, value, "not UTF-8", "save the file as UTF-8")]) from None
    text = text.removeprefix("\ufeff")
    strange = _UNPRINTABLE.search(text)
    if strange is not None:
        value = f"U+{ord(strange[0]):04X}"
        raise DocumentError(
            [_build_problem(text[: strange.start()], value, "a character that YAML does not allow", "remove it")]
        )
    return text


def _build_problem(before: str, value: str, reason: str, remedy: str) -> Problem:
    """Return a problem at the position after the text `before`."""
    lines = LINE_END.split(before)
    return Problem(len(lines), len(lines[-1]) + 1, DOCUMENT, value, reason, remedy)


def build_syntax_problem(syntax: SyntaxProblem, text: str) -> Problem:
    """Return the problem of a syntax error, with its line as the value."""
    lines = LINE_END.split(text)
    here = lines[syntax.line - 1].strip() if syntax.line <= len(lines) else ""
    return Problem(
        syntax.line, syntax.column, DOCUMENT, format_value(here) if here else "(end)", syntax.reason, syntax.remedy
    )
