"""Durations and quantities, compared with Go's and Kubernetes' grammar by way of Decimal."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import PROPERTY
from webhook.core.kubernetes.quantity import Duration, Quantity, parse_quantity

DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_EXPONENTS = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

digits = st.text("0123456789", min_size=1, max_size=15)
numbers = st.one_of(
    digits,
    digits.map(lambda whole: f"{whole}."),
    digits.map(lambda part: f".{part}"),
    st.builds(lambda whole, part: f"{whole}.{part}", digits, digits),
)
signs = st.sampled_from(["", "+"])


@PROPERTY
@given(signs, numbers, st.sampled_from(sorted(DECIMAL_EXPONENTS)))
def test_decimal_suffixes_are_exact(sign: str, number: str, suffix: str) -> None:
    with localcontext(prec=100):
        expected = Decimal(number) * Decimal(10) ** DECIMAL_EXPONENTS[suffix]
    assert parse_quantity(f"{sign}{number}{suffix}") == Fraction(expected)


@PROPERTY
@given(numbers, st.sampled_from(sorted(BINARY_EXPONENTS)))
def test_binary_suffixes_are_exact(number: str, suffix: str) -> None:
    with localcontext(prec=100):
        expected = Decimal(number) * Decimal(1024) ** BINARY_EXPONENTS[suffix]
    assert parse_quantity(number + suffix) == Fraction(expected)


@PROPERTY
@given(numbers, st.sampled_from("eE"), signs | st.just("-"), st.integers(0, 980))
def test_exponents_are_exact(number: str, letter: str, sign: str, exponent: int) -> None:
    with localcontext(prec=1200, Emax=3000, Emin=-3000):
        expected = Fraction(Decimal(number).scaleb(-exponent if sign == "-" else exponent))
    assert parse_quantity(f"{number}{letter}{sign}{exponent}") == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100m", Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("1Ei", 2**60),
        ("1.5Gi", 3 * 2**29),
        ("-0", 0),
    ],
)
def test_known_quantities(text: str, value: Fraction) -> None:
    assert Quantity.parse(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        *("1K", "1ki", "1mi", "1gi", "1Kb", "1e", "1e+", "1e1.5", "1m1", "--1", "-1", "-1m", "-1e99999999"),
        *(".", "+", "1_000", "1,5", "0x10", "NaN", "inf", "1/2", "٣", "", " 1", "1 ", "1\n", "-" + "9" * 65),
    ],
)
def test_invalid_quantity_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a Kubernetes quantity|must not be negative"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # as an API server accepts them: it sends 1e10000000 to webhooks as 10e9999999
        ("9" * 82, 10**82 - 1),
        ("1e1000", 10**1000),
        ("10e9999999", 10**1000),
        ("1e" + "9" * 1_000_000, 10**1000),
        ("9" * 1_000_000, 10**1000),
        ("1" + "0" * 1_000_000 + "e-1000000", 1),
        ("0." + "0" * 1_000_000 + "1e1000001", 1),
        ("0e99999999999", 0),
        ("000" + "0" * 1_000_000, 0),
        ("1e-99999999999", Fraction(1, 10**1000)),
        ("0." + "0" * 1_000_000 + "1", Fraction(1, 10**1000)),
    ],
    ids=range(11),
)
def test_huge_quantities_are_bounded(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


def test_excess_digits_are_rounded_up() -> None:
    assert 1 < parse_quantity("1." + "0" * 1_000_000 + "1") < 1 + Fraction(1, 10**1000)


def test_quantities_are_equal_by_value_and_keep_their_text() -> None:
    assert Quantity.parse("1000m") == Quantity.parse("1")
    assert hash(Quantity.parse("1000m")) == hash(Quantity.parse("1"))
    assert str(Quantity.parse("1000m")) == "1000m"
    assert Quantity.parse("1") != Duration.parse("1us"), "a quantity is not equal to a duration of the same number"


UNITS_US = {
    "ns": Fraction(1, 1000),
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1000,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
}


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(UNITS_US))), min_size=1, max_size=5))
def test_durations_add_their_parts_exactly(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    expected = sum((number * Fraction(UNITS_US[unit]) for number, unit in parts), Fraction(0))
    if expected > 0 and expected.denominator == 1 and len(text) <= 64:
        assert Duration.parse(text).us == expected
    else:
        with pytest.raises(ValueError, match=r"not above 0|finer than 1us|longer than 64"):
            Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "us"),
    [("1h30m", 5_400_000_000), ("1.5s", 1_500_000), (".5s", 500_000), ("1.s", 10**6), ("60s", 60 * 10**6)],
)
def test_known_durations(text: str, us: int) -> None:
    assert Duration.parse(text).us == us


@pytest.mark.parametrize(("text", "us"), [("+5m", 300_000_000), ("1m" * 32, 32 * 60_000_000)])
def test_unusual_go_durations_are_accepted(text: str, us: int) -> None:
    assert Duration.parse(text).us == us


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "not a Go duration") for text in ("", "1", "s", "1 s", "1s ", "1h-30m", "٣s", "1e3s", "-", "+", "1M")),
        ("1d", "not a Go duration: it has no days or weeks: write hours, such as 24h"),
        *((text, "not above 0") for text in ("-1s", "-0s", "0s", "0", "-0", "0ns")),
        *((text, "finer than 1us") for text in ("1ns", "1.0000001s")),
        ("1m" * 40, "longer than 64 characters"),
    ],
)
def test_invalid_duration_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        Duration.parse(text)
