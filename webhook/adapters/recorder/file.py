"""Record file: whole lines, appended, readable only by its owner."""

import fcntl
import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.errors import UserError

_DAY_US = 86_400_000_000
_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 20
"""Longer than any line: a cluster limits the size of a Pod."""
_EPOCH = datetime.fromtimestamp(0, UTC)


class FullError(Exception):
    """The file has reached its maximum size."""


class RecordFile:
    """One file, new or continued. `zero_us` is the origin of its events' times, `last_us` the newest of these times.

    The origin of a new file is the last midnight, UTC, so that a replay has the same bucket boundaries as the server
    and records of several servers can be merged by `at`.
    """

    def __init__(self, path: Path, bytes_max: int, sample_every: int, now_us: int) -> None:
        """Open the file exclusively. Raise UserError if that fails or the content is not a record."""
        self._path = path
        self._bytes_max = bytes_max
        self.zero_us, self.last_us = now_us - now_us % _DAY_US, 0
        try:
            self._fd = _open(path)
            self.size = os.fstat(self._fd).st_size
            if self.size:
                self._continue()
            else:
                self.append([msgspec.json.encode(self._make_head(sample_every)) + b"\n"])
        except OSError as error:
            raise UserError(f"--record: {path}: {error.strerror}", "give a file that this server may write") from None
        except FullError:
            raise UserError(f"--record-max-bytes: {bytes_max}: too few for a single line", "allow more") from None

    def _continue(self) -> None:
        """Continue after the last complete line, with the origin in the first line."""
        head = os.pread(self._fd, _HEAD_BYTES, 0)
        tail = os.pread(self._fd, _TAIL_BYTES, max(0, self.size - _TAIL_BYTES))
        cut = len(tail) - tail.rfind(b"\n") - 1  # an incomplete line left by a crash
        try:
            since = datetime.fromisoformat(msgspec.json.decode(head[: head.index(b"\n")])["recorded"]["since"])
            newest = msgspec.json.decode(tail[: len(tail) - cut].splitlines()[-1])["at"]
            self.zero_us, self.last_us = round((since - _EPOCH).total_seconds()) * 1_000_000, round(newest * 1e6)
        except (ValueError, LookupError, TypeError, *UNREADABLE_JSON):
            self._refuse("it holds something else than a record of this server")
        self.size -= cut
        os.ftruncate(self._fd, self.size)

    def _refuse(self, reason: str) -> NoReturn:
        os.close(self._fd)
        raise UserError(f"--record: {self._path}: {reason}", "give another path, or remove the file")

    def _make_head(self, sample_every: int) -> dict[str, Any]:
        """Return the head line, which describes the record."""
        since = datetime.fromtimestamp(self.zero_us // 1_000_000, UTC)
        return {"at": 0, "recorded": {"since": f"{since:%Y-%m-%dT%H:%M:%SZ}", "sampleEvery": sample_every}}

    def append(self, lines: Sequence[bytes]) -> None:
        """Append all lines or none. Raise FullError if they do not fit, OSError if writing fails."""
        data = b"".join(lines)
        if self.size + len(data) > self._bytes_max:
            raise FullError
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self.size += len(data)

    def close(self) -> None:
        os.close(self._fd)


def _open(path: Path) -> int:
    """Open and lock the file without following a symbolic link or blocking on a pipe."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        _lock(fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def _lock(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(0, "not a regular file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(0, "another server records into it") from None
    os.fchmod(fd, 0o600)
