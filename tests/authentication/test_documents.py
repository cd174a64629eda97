"""Hand-written authentication documents: read in exactly one way, or rejected."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.nesting import TOO_DEEP
from webhook.authentication.identity_file import parse_identities
from webhook.authentication.jwks import read_key_set
from webhook.authentication.revocations import parse_revocations
from webhook.errors import UserError

YAML_READERS: tuple[Callable[[bytes, str], Any], ...] = (parse_revocations, parse_identities)
READERS = (*YAML_READERS, read_key_set)
MARKS = "# iss: jti: role: certificate:\n"
"""Words by which both readers accept the text as their kind of document."""


@pytest.mark.parametrize("reader", YAML_READERS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "nested deeper than 64 levels"),
        ("- " * 100_000, "nested deeper than 64 levels"),
        ("{a: " * 50_000, "nested deeper than 64 levels"),
        ("? " * 50_000, "nested deeper than 64 levels"),
        ("- *a", "define the anchor above its first use"),
        ("&a [*a]", "write the value out"),
        ("a: 1\na: 2", ""),
        ("- {a: {b: 1, 'b': 2}}", "written twice"),
        ("[1]: 2\n[1]: 3", ""),
        ("--- []\n--- []", "a second YAML document"),
        ("!!python/object/apply:os.getcwd []", "has no meaning here"),
        ("- !!timestamp x", "has no meaning here"),
        ("- !!int x", "has no meaning here"),
        ("\x00", "a character that YAML does not allow"),
    ],
    ids=lambda text: text[:20],
)
def test_an_ambiguous_or_expensive_document_is_rejected(
    reader: Callable[[bytes, str], Any], text: str, message: str
) -> None:
    with pytest.raises(UserError) as refused:
        reader((MARKS + text).encode(), "f")
    assert message in str(refused.value)
    assert str(refused.value).startswith("f:")


@pytest.mark.parametrize("reader", YAML_READERS)
def test_input_that_is_not_utf_8_is_rejected(reader: Callable[[bytes, str], Any]) -> None:
    with pytest.raises(UserError, match="not UTF-8"):
        reader(b"\xff", "f")


@pytest.mark.parametrize("reader", READERS)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_file_content_is_read_or_reported_as_invalid(reader: Callable[[bytes, str], Any], content: bytes) -> None:
    with suppress(UserError):
        reader(content, "f")


def test_a_key_set_that_is_nested_too_deeply_is_rejected() -> None:
    with pytest.raises(UserError, match="f: not JSON: nested deeper than 128 levels"):
        read_key_set(f'{{"keys": [{TOO_DEEP}]}}'.encode(), "f")


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
_NAMES = st.sampled_from(["kid", "kty", "alg", "use", "key_ops", "crv", "x", "y", "n", "e", "d", "iss", "keys"])
_KTY = st.fixed_dictionaries({"kty": st.sampled_from(["EC", "RSA", "OKP", "oct"]), "kid": st.text("ab", min_size=1)})


@given(
    st.lists(st.builds(lambda kty, members: {**kty, **members}, _KTY, st.dictionaries(_NAMES, _SCALARS)), max_size=3)
)
def test_any_key_is_accepted_or_left_out(keys: list[dict[str, Any]]) -> None:
    with suppress(UserError):
        key_set = read_key_set(json.dumps({"keys": keys}).encode(), "f")
        assert len(key_set.keys) + len(key_set.faults) >= len(keys)
