"""Overrides in a file: watched by a server, and changed by commands that do not lose each other's changes."""

import asyncio
import errno
import os
import re
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


async def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    target, link = tmp_path / "mounted" / "overrides.yaml", tmp_path / "overrides.yaml"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    store = FileOverridesStore(link)
    await store.read()
    assert await store.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("mode", "refused", "reason"),
    [
        (0o644, {"user", "group"}, ""),
        (0o640, {"user"}, "it belongs to user {uid}, who could not read it any more"),
        (0o640, {"group"}, "it belongs to group {gid}, who could not read it any more"),
        (0o600, {"user", "group"}, "it belongs to user {uid}, who could not read it any more"),
        (0o600, {"group"}, ""),
    ],
)
async def test_owner_and_group_are_kept_or_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, refused: set[str], reason: str
) -> None:
    path, asked = tmp_path / "overrides.yaml", list[tuple[int, int]]()

    def chown(_: int, uid: int, gid: int) -> None:
        asked.append((uid, gid))
        if ("user" if gid == -1 else "group") in refused:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    path.write_bytes(b"old")
    path.chmod(mode)
    known, store = path.stat(), FileOverridesStore(path)
    await store.read()
    monkeypatch.setattr(os, "fchown", chown)
    if reason:
        expected = f"{path}: cannot be written: {reason.format(uid=known.st_uid, gid=known.st_gid)}"
        with pytest.raises(UserError, match=re.escape(expected)):
            await store.write(b"new")
    else:
        assert await store.write(b"new")
        assert asked == [(known.st_uid, -1), (-1, known.st_gid)]
    found = await asyncio.to_thread(lambda: [(found.name, found.read_bytes()) for found in tmp_path.iterdir()])
    assert found == [("overrides.yaml", b"old" if reason else b"new")]
    assert path.stat().st_mode & 0o777 == mode
