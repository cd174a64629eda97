"""Watched files: cost of a change, atomic replacement, and reports of invalid content."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.timeouts import HANG_SECONDS
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile


async def test_who_is_served_meanwhile_does_not_wait_until_a_changed_file_is_understood(tmp_path: Path) -> None:
    """It is understood only once the event loop has gone on."""
    path, begun, may_end = tmp_path / "file", threading.Event(), threading.Event()
    path.write_text("old")

    def parse(contents: tuple[bytes, ...]) -> bytes:
        if contents[0] != b"old":
            begun.set()
            assert may_end.wait(HANG_SECONDS), "the event loop has waited for it"
        return contents[0]

    told: list[str | None] = []
    kept = WatchedFile([path], 100, parse, told.append)
    path.write_text("new")
    looking = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        assert await asyncio.to_thread(begun.wait, HANG_SECONDS)
        assert (kept.value, kept.generation, told) == (b"old", 1, [None])
        may_end.set()
        while len(told) < 2:  # noqa: ASYNC110 - it happens in another task
            await asyncio.sleep(0.01)
    assert (kept.value, kept.generation, told) == (b"new", 2, [None, None])
    looking.cancel()


async def test_a_changed_file_that_is_bad_is_reported_once_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")

    def parse(contents: tuple[bytes, ...]) -> int:
        looks.append(contents[0])
        if not contents[0].isdigit():
            raise UserError(f"{path}: {contents[0]!r}", "write a number")
        return int(contents[0])

    looks: list[bytes] = []
    told: list[str | None] = []
    kept = WatchedFile([path], 100, parse, told.append)
    path.write_text("x")
    looking = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        while looks.count(b"x") < 3:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    looking.cancel()
    assert (kept.value, kept.generation, kept.failures, told) == (1, 1, 1, [None, kept.error])


async def test_what_the_parser_did_not_foresee_is_reported_of_its_file(tmp_path: Path) -> None:
    """In the loop that looks at files it would be nobody's: that begins again, and the metrics say that all is well."""
    path, told = tmp_path / "file", list[str | None]()
    path.write_text("1")
    kept = WatchedFile([path], 100, lambda contents: int(contents[0]), told.append)
    path.write_text("x")
    looking = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        while kept.error is None and not looking.done():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    looking.cancel()
    assert str(kept.error) == f"{path}: invalid content: ValueError"  # what it says quotes the file
    assert (kept.value, kept.failures, told) == (1, 1, [None, kept.error])
    with pytest.raises(UserError, match="invalid content"):
        WatchedFile([path], 100, lambda contents: int(contents[0]), told.append)
