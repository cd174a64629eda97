"""YAML that somebody writes by hand: whatever stands there, it is read in one way or told to be wrong."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.authentication.identity_file import parse_identities
from webhook.authentication.tokens.jwks import read_key_set
from webhook.authentication.tokens.revocations import parse_revocations
from webhook.errors import UserError
from webhook.support.strict_yaml import read_yaml

READERS: tuple[Callable[[bytes, str], Any], ...] = (read_yaml, parse_revocations, parse_identities, read_key_set)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "nested deeper than 16 levels"),
        ("- " * 100_000, "nested deeper than 16 levels"),
        ("{a: " * 50_000, "nested deeper than 16 levels"),
        ("? " * 50_000, "nested deeper than 16 levels"),
        ("- &a x\n- *a", "aliases are not accepted"),
        ("&a [*a]", "aliases are not accepted"),
        ("a: 1\na: 2", "the key 'a' stands twice"),
        ("- {a: {b: 1, 'b': 2}}", "the key 'b' stands twice"),
        ("[1]: 2\n[1]: 3", "not YAML"),
        ("--- 1\n--- 2", "not YAML"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
        ("!!timestamp x", "not YAML"),
        ("!!int x", "not YAML"),
        ("2030-13-45T00:00:00Z", "not YAML"),
        ("\x00", "not YAML"),
    ],
    ids=lambda text: text[:20],
)
def test_what_could_be_misread_or_costs_too_much_is_refused(text: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        read_yaml(text.encode(), "f")
    assert says in str(refused.value)
    assert str(refused.value).startswith("f: ")


def test_what_is_no_utf_8_is_refused() -> None:
    with pytest.raises(UserError, match="f: not UTF-8"):
        read_yaml(b"\xff", "f")


@pytest.mark.parametrize("reader", READERS)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_whatever_a_file_holds_is_read_or_told_to_be_wrong(reader: Callable[[bytes, str], Any], content: bytes) -> None:
    with suppress(UserError):
        reader(content, "f")


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
_NAMES = st.sampled_from(["kid", "kty", "alg", "use", "key_ops", "crv", "x", "y", "n", "e", "d", "iss", "keys"])
_KTY = st.fixed_dictionaries({"kty": st.sampled_from(["EC", "RSA", "OKP", "oct"]), "kid": st.text("ab", min_size=1)})


@given(st.lists(st.builds(lambda kty, more: {**kty, **more}, _KTY, st.dictionaries(_NAMES, _SCALARS)), max_size=3))
def test_whatever_a_key_says_it_is_taken_or_left_out(keys: list[dict[str, Any]]) -> None:
    with suppress(UserError):
        found = read_key_set(json.dumps({"keys": keys}).encode(), "f")
        assert len(found.keys) + len(found.faults) >= len(keys)
