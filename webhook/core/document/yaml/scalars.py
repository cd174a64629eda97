"""Resolution of unquoted scalars: YAML 1.1 booleans, numbers that all parsers read alike, else text."""

import re

from webhook.core.document.yaml.nodes import ExactNumber, Scalar

_TRUE = frozenset({"yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"})
_FALSE = frozenset({"no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})", re.ASCII)  # 18 digits: fits 64 bits
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_AMBIGUOUS = re.compile(r"[+-]?0\d[\d.]*", re.ASCII)  # 010 is 8 to one parser and 10 to another


def resolved(text: str) -> Scalar:
    """Return the value of a plain scalar. Dates and 010 stay text."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not _AMBIGUOUS.fullmatch(text):
        return ExactNumber(text)
    return text
