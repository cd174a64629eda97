"""Patches that go on: the same JSON as one that was made at once, whatever the length of its start."""

import base64
import json

import msgspec
import pytest

from webhook.core.patch import NO_PATCH, Patch, PatchOperation, add, remove

MORE = [add("12", "metadata", "annotations", "podgate.io/slot"), add('a "claim" é', "metadata", "annotations", "b")]


def decode(patch: Patch) -> object:
    return json.loads(base64.b64decode(json.loads(bytes(patch.encoded))))


@pytest.mark.parametrize("length", range(12))
@pytest.mark.parametrize("count", range(3))
def test_an_extended_patch_is_encoded_as_one_that_was_made_at_once(count: int, length: int) -> None:
    start = Patch([add("x" * length, "spec"), remove("metadata", "labels", "a/b"), *[add({"a": [1]}, "c")]][:count])
    extended, whole = start.extend(MORE), Patch([*start, *MORE])
    assert extended == whole
    assert decode(extended) == decode(whole) == json.loads(msgspec.json.encode(whole))
    assert decode(start) == json.loads(msgspec.json.encode(start)), "it stays as it is"


def test_an_extension_by_nothing_is_the_same_patch() -> None:
    operations: list[PatchOperation] = []
    assert NO_PATCH.extend(operations) == NO_PATCH
    assert decode(Patch(MORE).extend(operations)) == decode(Patch(MORE))
