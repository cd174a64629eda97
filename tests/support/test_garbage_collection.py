"""Garbage collection while many objects are created."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from webhook.support.process_memory import defer_collection, pause_collection


@pytest.mark.parametrize("block", [pause_collection, defer_collection])
@pytest.mark.parametrize("was_on", [True, False])
def test_it_is_off_within_the_block_and_as_before_after_it(
    block: Callable[[], AbstractContextManager[None]], *, was_on: bool
) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with suppress(LookupError), block():
            assert not gc.isenabled()
            raise LookupError
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if before else gc.disable)()


def test_only_put_off_excludes_objects_from_later_collections() -> None:
    frozen = gc.get_freeze_count()
    with pause_collection():
        kept = [[number] for number in range(100)]
    assert gc.get_freeze_count() == frozen
    with defer_collection():
        pass
    assert gc.get_freeze_count() >= frozen + len(kept)
