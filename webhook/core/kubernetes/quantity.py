"""Go durations and Kubernetes quantities as exact fractions, never floats."""

import re
from fractions import Fraction
from functools import lru_cache

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1_000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
_DAYS_TEXT = re.compile(r"[0-9.]+[dwy]")
_DAYS = "it has no days or weeks: write hours, such as 24h"
_UNITS = "write a number with a unit, such as 500ms, 30s, 5m or 24h"
_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DURATION_CHARACTERS_MAX = 64  # a longer duration is a mistake or an attack
CACHED_CHARACTERS_MAX = 64
"""Longest quantity text that is cached. The API server accepts as many digits as fit into a request."""
_EXPONENT_MAX = 1000
"""Quantities above 10^1000 count as 10^1000; those above 0 and below 10^-1000 count as 10^-1000."""
_DIGITS_MAX = 2 * _EXPONENT_MAX  # further digits are rounded up
_EXPONENT_DIGITS_MAX = 9  # a request has fewer than 10^9 digits, so none outweighs a longer exponent


class UnreadableTextError(ValueError):
    """A text is no value of its kind: the reason, and the remedy or ""."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}: {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class DaysError(UnreadableTextError):
    """A duration is given in days, weeks or years, which Go does not have."""


class _ExactValue:
    """A value with the text that it was parsed from. Equal by value, not by text."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Fraction) -> None:
        self.text = text
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __str__(self) -> str:
        return self.text


class Duration(_ExactValue):
    """A Go duration (`1h30m`, `250ms`); `value` in microseconds."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Parse `text`. UnreadableTextError: not a duration above 0."""
        sign, rest, total = "", text, Fraction(0)
        if text[:1] in {"+", "-"}:
            sign, rest = text[0], text[1:]
        is_empty = not rest
        if len(text) > _DURATION_CHARACTERS_MAX:
            raise UnreadableTextError(f"longer than {_DURATION_CHARACTERS_MAX} characters", _UNITS)
        if rest == "0":
            rest = ""  # Go accepts 0 without a unit
        while rest:
            part = _DURATION_PART.match(rest)
            if part is None:
                break
            total += Fraction(part[1]) * _MICROSECONDS[part[2]]
            rest = rest[part.end() :]
        if _DAYS_TEXT.fullmatch(rest):
            raise DaysError("not a Go duration", _DAYS)
        if rest or is_empty:
            raise UnreadableTextError("not a Go duration", _UNITS)
        if sign == "-" or not total:
            raise UnreadableTextError("not above 0", _UNITS)
        if total.denominator != 1:
            raise UnreadableTextError("finer than 1us, the smallest unit", _UNITS)
        return cls(text, total)

    @property
    def us(self) -> int:
        """Microseconds."""
        return int(self.value)


class Quantity(_ExactValue):
    """A Kubernetes quantity (`500m`, `1.5Gi`, `3e2`); `value` exact, in the resource's own unit."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Parse `text`. ValueError, with a message for the user: not a quantity, or negative."""
        return cls(text, parse_quantity(text))


class Number(float):
    """A number that may have a fraction. msgspec does not convert a document's numbers, which keep their text."""

    __slots__ = ()


def convert_amount(kind: type, value: object) -> Duration | Quantity | Number:
    """Return an amount from its plain value: msgspec's `dec_hook`."""
    if kind is Number:
        return Number(str(value))
    if kind is Duration or kind is Quantity:
        return _parse_amount(kind, str(value))
    raise NotImplementedError(kind)


@lru_cache(maxsize=4096)
def _parse_amount(kind: type[Duration] | type[Quantity], text: str) -> Duration | Quantity:
    """Parse an amount of a document. The services of a policy mostly share a few amounts: each is parsed once."""
    return kind.parse(text)


def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity, within bounds. UnreadableTextError: not a quantity, or negative.

    The API server accepts `1e10000000` and numbers of thousands of digits. Amounts far beyond any real one are cut off,
    so that parsing takes bounded time.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        remedy = "write a number with an optional suffix, such as 500m, 4 or 16Gi"
        raise UnreadableTextError("not a Kubernetes quantity", remedy)
    part, suffix = found[3] or "", found[4] or ""
    digits = (found[2] + part).lstrip("0")
    if not digits:
        return Fraction(0)
    if found[1] == "-":
        raise UnreadableTextError("a quantity must not be negative")
    shift = _BINARY.get(suffix, 0)
    exponent = 0 if shift else _DECIMAL[suffix] if suffix in _DECIMAL else _parse_exponent(suffix[1:])
    magnitude = len(digits) - len(part) + exponent  # 10^(magnitude - 1) <= the decimal number < 10^magnitude
    if abs(magnitude) > _EXPONENT_MAX:
        return Fraction(10) ** (_EXPONENT_MAX if magnitude > 0 else -_EXPONENT_MAX)
    kept = digits[:_DIGITS_MAX]
    number = int(kept) + bool(digits[_DIGITS_MAX:].strip("0"))
    power = magnitude - len(kept)
    return Fraction((number << shift) * 10**power) if power >= 0 else Fraction(number << shift, 10**-power)


def _parse_exponent(text: str) -> int:
    """Return the number after the `e`; a number of too many digits is replaced by a large one."""
    digits = text.lstrip("+-").lstrip("0") or "0"
    size = int(digits) if len(digits) <= _EXPONENT_DIGITS_MAX else 10**_EXPONENT_DIGITS_MAX
    return -size if text.startswith("-") else size
