"""What others have written is read as Go reads it, whatever is in fields that nobody reads."""

from typing import Any

import msgspec
import pytest

from tests.harness.nesting import nest
from tests.harness.unread_values import UNREAD
from webhook.core.json_depth import DEPTH_MAX, decode_foreign, make_readable


class Named(msgspec.Struct):
    name: str


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("kind", [Named, dict[str, Any]])
def test_a_value_that_nobody_reads_hides_no_field(unread: bytes, kind: type[Any]) -> None:
    found = msgspec.to_builtins(decode_foreign(b'{"other":%s,"name":"n"}' % unread, kind))
    assert found["name"] == "n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"\ud800", "\ufffd"),
        (rb"\uDC00x", "\ufffdx"),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud800\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud800\u0041", "\ufffdA"),
        (rb"\\ud800", "\\ud800"),
        (rb"\\\ud800", "\\\ufffd"),
        (b"\xff", "\ufffd"),
        (b"\xff\\ud800", "\ufffd\ufffd"),
        ("é".encode(), "é"),
    ],
)
def test_what_is_no_unicode_is_replaced_as_go_does(text: bytes, read: str) -> None:
    assert msgspec.json.decode(make_readable(b'"%s"' % text)) == read
    assert decode_foreign(b'{"name":"%s"}' % text, Named) == Named(read)


def test_a_free_value_is_bounded_alike_on_each_interpreter() -> None:
    deep = nest(DEPTH_MAX + 10, '{"a":', "}").encode()
    assert decode_foreign(b'{"deep":%s,"name":"n"}' % deep, dict[str, Any])["name"] == "n"


@pytest.mark.parametrize("text", [b"", b"{", b'{"name":', b'{"name":1}', b'{"other":\xff,"name":"n"}', b'["n"]'])
def test_what_is_no_json_or_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_foreign(text, Named)


def test_a_string_without_an_end_is_read_once() -> None:
    """Were it looked for at each quote in it, this would take an hour."""
    text = b"[" * (DEPTH_MAX + 1) + b'"' + b'\\"' * 500_000
    assert make_readable(text) == text
