"""Go durations and Kubernetes quantities, read exactly: no float ever touches an amount."""

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
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LONGEST = 64  # characters; a longer number is a mistake or an attack


class _Parsed:
    """A value that remembers the text it was written as. Equal by value, not by text."""

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


class Duration(_Parsed):
    """A Go duration (`1h30m`, `250ms`); `value` in microseconds."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read `text`; ValueError with a sentence for the user when it is no positive Go duration."""
        rest, total = text, Fraction(0)
        while rest and len(text) <= _LONGEST:
            part = _DURATION_PART.match(rest)
            if part is None:
                break
            total += Fraction(part[1]) * _MICROSECONDS[part[2]]
            rest = rest[part.end() :]
        if rest or not text:
            raise ValueError("not a Go duration: write a number with a unit, such as 500ms, 30s, 5m or 24h")
        if total <= 0 or total.denominator != 1:
            raise ValueError("a duration must be positive and a whole number of microseconds")
        return cls(text, total)

    @property
    def us(self) -> int:
        """Microseconds."""
        return int(self.value)


class Quantity(_Parsed):
    """A Kubernetes quantity (`500m`, `1.5Gi`, `3e2`); `value` exact, in the resource's own unit."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read `text`; ValueError with a sentence for the user when it is no non-negative quantity."""
        return cls(text, quantity_value(text))


@lru_cache(maxsize=4096)
def quantity_value(text: str) -> Fraction:
    """Return the exact value of a quantity's text. A negative one is an error: nothing here may be below 0."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError("not a Kubernetes quantity: write a number with an optional suffix, such as 500m, 4 or 16Gi")
    number, suffix = Fraction(found[1]), found[2] or ""
    if suffix in _BINARY:
        number *= 1 << _BINARY[suffix]
    elif suffix in _DECIMAL:
        number *= Fraction(10) ** _DECIMAL[suffix]
    else:
        number *= Fraction(10) ** int(suffix[1:])
    if number < 0:
        raise ValueError("a quantity below 0 has no meaning here")
    return number
