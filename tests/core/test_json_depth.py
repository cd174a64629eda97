"""The depth of free values is bounded alike on each release of CPython; what nobody reads may be deeper."""

import json
from typing import Any

import msgspec
import pytest

from tests.harness.nesting import nest
from webhook.core.json_depth import DEPTH_MAX, BoundedDecoder, bound_depth, decode_foreign, drop_deep


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ('[2,{"b":"[[","a":', "},3]")])
def test_depth_is_bounded_whatever_nests(begin: str, end: str) -> None:
    levels = DEPTH_MAX // (2 if "{" in begin and "[" in begin else 1)
    deepest = nest(levels, begin, end)
    decoder = BoundedDecoder(Any)
    assert decoder.decode(deepest.encode()) == json.loads(deepest)
    for deeper in (f"[{deepest}]", f'{{"a":1,"b":{deepest}}}'):
        for decode in (decoder.decode, lambda text: bound_depth(json.loads(text))):
            with pytest.raises(RecursionError):
                decode(deeper.encode())


def test_a_wide_value_is_not_deep() -> None:
    value = [{"a": [number, []]} for number in range(10 * DEPTH_MAX)]
    assert bound_depth(value) is value
    assert bound_depth("[" * 10 * DEPTH_MAX) == "[" * 10 * DEPTH_MAX


def test_the_bound_is_the_lower_one_on_each_interpreter() -> None:
    """Were the interpreter's the lower one, it would refuse what the bound allows."""
    assert msgspec.json.decode(nest(4 * DEPTH_MAX, "[", "]"))


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a]":', "}"), ('["[\\"{\\\\",', "]")])
def test_only_what_is_below_the_bound_is_dropped(begin: str, end: str) -> None:
    kept = nest(DEPTH_MAX - 1, begin, end)
    for text in ("1", '"[["', kept, f"[{kept}, {kept}]"):
        assert drop_deep(text.encode()) == text.encode()
    deeper = nest(DEPTH_MAX, begin, end)
    dropped = f"[{deeper}, 2, {deeper}]".replace(nest(1, begin, end), "null")
    assert drop_deep(f"[{deeper}, 2, {deeper}]".encode()) == dropped.encode()
    much_deeper = nest(9_000, begin, end)
    assert json.loads(drop_deep(f"[{much_deeper}, 3]".encode())) == json.loads(
        f"[{nest(DEPTH_MAX, begin, end).replace(nest(1, begin, end), 'null')}, 3]"
    )


def test_fields_that_nobody_reads_are_as_deep_as_they_like() -> None:
    class Read(msgspec.Struct):
        name: str

    for levels in (1, DEPTH_MAX, 9_000):
        assert decode_foreign(f'{{"other": {nest(levels)}, "name": "n"}}'.encode(), Read) == Read("n")
    for cut in (nest(9_000, "[", ""), f'{{"other": {nest(9_000)}, "name": 1}}'):
        with pytest.raises((msgspec.MsgspecError, RecursionError)):
            decode_foreign(cut.encode(), Read)
