"""Overrides file: read every second by a server, changed by commands. A missing file means no overrides."""

import asyncio
import fcntl
import getpass
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webhook.core.overrides.loading import OVERRIDES_BYTES_MAX
from webhook.errors import UserError
from webhook.ports import DocumentReceiver
from webhook.support.watched_file import read_regular

POLL_SECONDS = 1.0


class OverridesFile:
    """Reader that passes the content of the file to a receiver every second."""

    def __init__(self, path: Path, receiver: DocumentReceiver, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._path = path
        self._receiver = receiver
        self._poll_seconds = poll_seconds

    async def refresh(self) -> None:
        """Read now."""
        try:
            raw = await asyncio.to_thread(_content, self._path)
        except OSError as error:
            reason = error.strerror or error
            await self._receiver.on_unreadable([f"{self._path}: cannot read the overrides: {reason}: fix or remove it"])
        else:
            await self._receiver.on_document(raw, str(self._path))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._poll_seconds)


class FileOverridesStore:
    """A `ports.OverridesStore` in a file, without a policy."""

    def __init__(self, path: Path, *, dry_run: bool = False) -> None:
        self._path = path
        self._dry_run = dry_run
        self._read = b""

    @property
    def place(self) -> str:
        return str(self._path)

    async def read(self) -> bytes:
        try:
            self._read = _content(self._path)
        except OSError as error:
            raise UserError(f"{self._path}: cannot be read: {error.strerror or error}", "give another path") from None
        return self._read

    async def write(self, raw: bytes) -> bool:
        target = (
            self._path.resolve()
        )  # what a link leads to is replaced, not the link: a server may read it by its name
        try:
            with _alone(target.parent):
                if _content(target) != self._read:
                    return False
                if not self._dry_run:
                    _replace(target, raw)
        except OSError as error:
            remedy = "give the path of a file in a folder that you may write to"
            raise UserError(f"{self._path}: cannot be written: {error.strerror or error}", remedy) from None
        return True

    async def read_author(self) -> str | None:
        try:
            return getpass.getuser()
        except (OSError, KeyError):  # a user without a name, as in containers
            return None

    async def read_policy(self) -> bytes | None:
        return None


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, OVERRIDES_BYTES_MAX)
    except FileNotFoundError:
        return b""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exclude other commands by a lock on the folder, because the file itself is replaced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, raw: bytes) -> None:
    """Write a temporary file and rename it: a server reads the old document or the new one.

    It keeps owner, group and mode. UserError: it cannot, and who reads it now could not do so any more.
    """
    known = path.stat() if path.exists() else None
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
            if known is not None:
                _keep_access(file.fileno(), path, known)
            os.fchmod(file.fileno(), known.st_mode & 0o7777 if known is not None else 0o644)
        Path(name).replace(path)
    except (OSError, UserError):
        Path(name).unlink(missing_ok=True)
        raise


def _keep_access(descriptor: int, path: Path, known: os.stat_result) -> None:
    """Give a new file the owner and the group of the former one, if somebody needs them to read it."""
    for uid, gid, bit in ((known.st_uid, -1, stat.S_IRUSR), (-1, known.st_gid, stat.S_IRGRP)):
        try:
            os.fchown(descriptor, uid, gid)
        except PermissionError:
            is_needed = known.st_mode & bit and not known.st_mode & stat.S_IROTH
            if is_needed:
                whose = f"user {uid}" if gid == -1 else f"group {gid}"
                reason = f"it belongs to {whose}, who could not read it any more"
                raise UserError(
                    f"{path}: cannot be written: {reason}", "run the command as its owner, or as root"
                ) from None
