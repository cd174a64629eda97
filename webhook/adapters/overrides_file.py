"""Overrides file: read every second by a server, changed by commands. A missing file means no overrides."""

import asyncio
import fcntl
import getpass
import os
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
        try:
            with _alone(self._path.parent):
                if _content(self._path) != self._read:
                    return False
                if not self._dry_run:
                    _replace(self._path, raw)
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
    """Write a temporary file and rename it: a server reads the old document or the new one."""
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
