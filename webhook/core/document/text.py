"""Bytes to text, and what to say of text that is not YAML."""

import re
from typing import Any

import yaml

from webhook.core.document.problems import DOCUMENT, DocumentError, Problem, shown

LARGEST_BYTES = 1 << 20  # a ConfigMap holds no more

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def decoded(raw: bytes) -> str:
    """Return the text; DocumentError where it is too long, not UTF-8, or holds what YAML forbids."""
    if len(raw) > LARGEST_BYTES:
        reason = f"{len(raw)} bytes, and a document holds at most {LARGEST_BYTES} (1 MiB)"
        raise DocumentError([Problem(1, 1, DOCUMENT, "(text)", reason, "split it, or use `defaults` for what repeats")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        value = f"0x{raw[error.start]:02x}"
        raise DocumentError([_at(before, value, "not UTF-8", "save the file as UTF-8")]) from None
    text = text.removeprefix("\ufeff")
    strange = _UNPRINTABLE.search(text)
    if strange is not None:
        value = f"U+{ord(strange[0]):04X}"
        raise DocumentError([_at(text[: strange.start()], value, "a character that YAML does not allow", "remove it")])
    return text


def _at(before: str, value: str, reason: str, remedy: str) -> Problem:
    """Make a problem that stands right after the text `before`."""
    lines = _LINE_END.split(before)
    return Problem(len(lines), len(lines[-1]) + 1, DOCUMENT, value, reason, remedy)


def syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """Say where the text stops being YAML. The marks of PyYAML's two parsers share no type."""
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    began: Any = getattr(error, "context_mark", None)
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    lines = _LINE_END.split(text)
    here = lines[line] if line < len(lines) else ""
    value = shown(here.strip()) if here.strip() else "(end)"
    if here[column : column + 1] == "\t":
        return Problem(line + 1, column + 1, DOCUMENT, value, "a tab cannot indent YAML", "use spaces")
    if column < len(here) and here[column] in "@`%*&!|>{}[],#?-\"'":
        remedy = "quote the value, or mend brackets, quotes and indentation here"
    else:
        remedy = "mend brackets, quotes, colons and indentation here or in the line above"
    reason = f"not YAML: {getattr(error, 'problem', None) or error}"
    if began is not None:
        reason += f", {getattr(error, 'context', None)} from line {began.line + 1} on"
    return Problem(line + 1, column + 1, DOCUMENT, value, " ".join(reason.split()), remedy)
