"""Scalars without quotes as kubectl reads them, and strings that need quotes.

kubectl reads YAML with go-yaml v2 (`resolve.go`) and sends it as JSON, whose integers have 64 bits. Most other readers
take less for numbers and booleans; PyYAML takes some more, such as 22:22.
"""

import re
import struct
from decimal import Decimal
from math import copysign, inf, isfinite, nan
from typing import Any

import yaml

from webhook.core.document.yaml.nodes import resolve_scalar

JsonScalar = str | int | float | bool | None

_WORDS: dict[str, JsonScalar] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((f"{sign}.{word}" for sign in ("", "+") for word in ("inf", "Inf", "INF")), inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
}
_INTEGER = re.compile(
    r"0b(?P<signed>[+-][01]+)|(?P<sign>[+-]?)(?:0[xX](?P<hexadecimal>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)"
    r"|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]{0,19}))"
)
_BASES = {"signed": 2, "hexadecimal": 16, "binary": 2, "octal": 8, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LOOSE = re.compile(r"_(?![0-9])|(?<![0-9])_")
_SIGNED, _UNSIGNED = range(-(1 << 63), 1 << 63), range(1 << 64)
_KEY_DIGITS_MAX = 9  # enough for each number of 32 bits
_KEY_EXPONENTS = range(-4, 6)  # beyond, Go writes the exponent
_PYYAML: Any = yaml.resolver.Resolver()


def resolve_as_kubectl(text: str) -> JsonScalar:
    """Return the value of an unquoted scalar; it may be infinite, or an integer without a sign of 64 bits."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." and _LOOSE.search(text) else text.replace("_", "")
    integer = _INTEGER.fullmatch(digits)
    if integer is not None and integer.lastgroup is not None:
        number = int((integer["sign"] or "") + integer[integer.lastgroup], _BASES[integer.lastgroup])
        if number in _SIGNED or (number in _UNSIGNED and not integer["sign"]):
            return number
    if _FLOAT.fullmatch(digits) and isfinite(float(digits)):
        return float(digits)
    return text


def convert_to_json(value: JsonScalar) -> JsonScalar:
    """Return the value that kubectl sends: numbers that are integers of 64 bits as such. ValueError: not in JSON."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("JSON has no such number")
    if isinstance(value, float) and value.is_integer():
        written = int(Decimal(repr(value)))  # the fewest digits, then zeros
        return written if written in _SIGNED else value
    if isinstance(value, int) and int(value) not in _SIGNED:
        return float(value)
    return value


def format_key(value: JsonScalar) -> str:
    """Return the key that kubectl sends in place of a value. ValueError: no key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value)
    if value is None or value not in _SIGNED:
        raise ValueError("JSON has no such key")
    return str(value)


def _format_float(number: float) -> str:
    """Return the nearest number of 32 bits, with as few digits as tell it from others, as Go does."""
    number = _round(number)
    if not isfinite(number):
        return str(number).replace("nan", ".nan").replace("inf", ".inf")
    texts = (f"{number:.{digits}e}" for digits in range(_KEY_DIGITS_MAX))
    short = next(text for text in texts if _round(float(text)) == number)
    mantissa, _, exponent = short.partition("e")
    if int(exponent) in _KEY_EXPONENTS:
        return f"{float(short):.{max(0, len(mantissa.strip('-').replace('.', '')) - 1 - int(exponent))}f}"
    return short


def _round(number: float) -> float:
    """Return the nearest number of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return copysign(inf, number)


def is_text_for_all(text: str) -> bool:
    """Return whether kubectl, Podgate and PyYAML read the text without quotes as a string."""
    is_text = isinstance(resolve_as_kubectl(text), str) and isinstance(resolve_scalar(text), str)
    return is_text and _PYYAML.resolve(yaml.ScalarNode, text, (True, False)) == "tag:yaml.org,2002:str"
