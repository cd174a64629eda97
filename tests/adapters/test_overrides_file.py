"""Overrides in a file: watched by a server, and changed by commands that do not lose each other's changes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.overrides import FixedClock, OverridesRecorder, entry
from tests.timeouts import HANG_SECONDS
from webhook.adapters.overrides_file import FileOverridesStore, OverridesFile
from webhook.core.overrides.loading import OVERRIDES_BYTES_MAX
from webhook.errors import UserError
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.ports import Observer, OverridesStore


class Watched:
    """An overrides file in its own folder, and its reports."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "overrides.yaml"
        self.recorder = OverridesRecorder()
        observer: Observer = self.recorder
        self.keeper = ActiveOverrides(observer, FixedClock(), str(self.path))
        self.source = OverridesFile(self.path, self.keeper, poll_seconds=0)

    def list_live(self) -> list[str]:
        return sorted(self.keeper.get_current().entries)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  the test waits for a file read, which has no event
            await asyncio.sleep(0)


async def test_missing_file_is_no_override_and_no_error(watched: Watched) -> None:
    await watched.source.refresh()
    assert watched.list_live() == []
    assert watched.keeper.list_errors() == ()
    assert watched.recorder.loaded == [[]]


async def test_overrides_follow_the_file(watched: Watched) -> None:
    task = asyncio.create_task(watched.source.run())
    try:
        watched.path.write_text(entry())
        await wait_until(lambda: watched.list_live() == ["payment-api"])
        watched.path.unlink()
        await wait_until(lambda: watched.list_live() == [])
    finally:
        task.cancel()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_irregular_file_keeps_overrides_and_is_reported(watched: Watched, make: Callable[[Path], None]) -> None:
    watched.path.write_text(entry())
    await watched.source.refresh()
    watched.path.unlink()
    make(watched.path)
    await watched.source.refresh()
    assert watched.list_live() == ["payment-api"]
    [error] = watched.keeper.list_errors()
    assert error == f"{watched.path}: cannot read the overrides: not a regular file: fix or remove it"


async def test_huge_file_is_not_read_whole(watched: Watched) -> None:
    with watched.path.open("wb") as file:
        file.truncate(1 << 40)
    await watched.source.refresh()
    assert f"{OVERRIDES_BYTES_MAX + 1} bytes" in watched.keeper.list_errors()[0]


async def test_overrides_file_is_written_only_if_unchanged_since_read(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    first: OverridesStore = FileOverridesStore(path)
    second = FileOverridesStore(path)
    assert (await first.read(), await second.read()) == (b"", b"")
    assert await first.write(b"mine")
    assert not await second.write(b"yours")
    assert path.read_bytes() == b"mine"
    assert await second.read() == b"mine"
    assert await second.write(b"both")
    left = await asyncio.to_thread(lambda: [found.name for found in tmp_path.iterdir()])
    assert left == ["overrides.yaml"], "nothing is left beside it"


async def test_file_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    store = FileOverridesStore(path)
    await store.read()
    await store.write(b"x")
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    await store.read()
    await store.write(b"y")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_unwritable_file_is_reported(tmp_path: Path) -> None:
    store = FileOverridesStore(tmp_path / "nowhere" / "overrides.yaml")
    assert await store.read() == b""
    with pytest.raises(UserError, match=r"overrides\.yaml: cannot be written: No such file or directory"):
        await store.write(b"x")
    with pytest.raises(UserError, match="cannot be read: not a regular file"):
        await FileOverridesStore(tmp_path).read()
