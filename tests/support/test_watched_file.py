"""Watched files: cost of a change, atomic replacement, and reports of invalid content."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.timeouts import HANG_SECONDS
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile


async def test_readers_do_not_wait_for_the_parser_of_a_changed_file(tmp_path: Path) -> None:
    """The parser ends only after the event loop has continued."""
    path, begun, may_end = tmp_path / "file", threading.Event(), threading.Event()
    path.write_text("old")

    def parse(contents: tuple[bytes, ...]) -> bytes:
        if contents[0] != b"old":
            begun.set()
            assert may_end.wait(HANG_SECONDS), "the event loop has waited for it"
        return contents[0]

    reports: list[str | None] = []
    kept = WatchedFile([path], 100, parse, reports.append)
    path.write_text("new")
    watching = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        assert await asyncio.to_thread(begun.wait, HANG_SECONDS)
        assert (kept.value, kept.generation, reports) == (b"old", 1, [None])
        may_end.set()
        while len(reports) < 2:  # noqa: ASYNC110 - it happens in another task
            await asyncio.sleep(0.01)
    assert (kept.value, kept.generation, reports) == (b"new", 2, [None, None])
    watching.cancel()


async def test_bad_change_is_reported_once_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")

    def parse(contents: tuple[bytes, ...]) -> int:
        parsed.append(contents[0])
        if not contents[0].isdigit():
            raise UserError(f"{path}: {contents[0]!r}", "write a number")
        return int(contents[0])

    parsed: list[bytes] = []
    reports: list[str | None] = []
    kept = WatchedFile([path], 100, parse, reports.append)
    path.write_text("x")
    watching = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        while parsed.count(b"x") < 3:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    watching.cancel()
    assert (kept.value, kept.generation, kept.failures, reports) == (1, 1, 1, [None, kept.error])


async def test_unexpected_parser_error_is_reported_with_its_file(tmp_path: Path) -> None:
    """Otherwise the loop that polls files would restart, and the metrics would show no failure."""
    path, reports = tmp_path / "file", list[str | None]()
    path.write_text("1")
    kept = WatchedFile([path], 100, lambda contents: int(contents[0]), reports.append)
    path.write_text("x")
    watching = asyncio.create_task(kept.run(0))
    async with asyncio.timeout(HANG_SECONDS):
        while kept.error is None and not watching.done():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    watching.cancel()
    assert str(kept.error) == f"{path}: invalid content: ValueError"  # what it says quotes the file
    assert (kept.value, kept.failures, reports) == (1, 1, [None, kept.error])
    with pytest.raises(UserError, match="invalid content"):
        WatchedFile([path], 100, lambda contents: int(contents[0]), reports.append)


def test_files_replaced_during_the_first_reading_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("half of a pair")

    def parse(contents: tuple[bytes, ...]) -> bytes:
        if contents[0] == b"half of a pair":
            path.write_text("a pair")
            raise UserError(f"{path}: changed while it was read", "replace it in one step")
        return contents[0]

    assert WatchedFile([path], 100, parse, lambda _: None).value == b"a pair"


def test_invalid_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    parsed: list[bytes] = []

    def parse(contents: tuple[bytes, ...]) -> bytes:
        parsed.append(contents[0])
        raise UserError(f"{path}: not a pair", "write one")

    with pytest.raises(UserError, match="not a pair"):
        WatchedFile([path], 100, parse, lambda _: None)
    assert parsed == [b"x"]
