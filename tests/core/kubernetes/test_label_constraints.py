"""Whole numbers of node affinity and tolerations are those of Go's ParseInt."""

import pytest

from webhook.core.kubernetes.label_constraints import parse_integer

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("-", None),
        ("+", None),
        ("0", 0),
        ("-0", 0),
        ("+07", 7),
        ("-07", -7),
        ("1_0", None),
        (" 1", None),
        ("\u00b2", None),
        (f"{MAX}", MAX),
        (f"{MAX + 1}", None),
        (f"-{MAX + 1}", -MAX - 1),
        ("0" * 5000, 0),
        (f"-{'0' * 5000}12", -12),
        ("9" * 5000, None),
    ],
)
def test_integers_are_parsed_as_go_does(text: str, expected: int | None) -> None:
    assert parse_integer(text) == expected
