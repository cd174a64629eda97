"""A value made from files: read again when they change, swapped whole when they are good, the last good one kept."""

import asyncio
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from webhook.errors import UserError

_POLL_SECONDS = 5.0
_T = TypeVar("_T")


class Reloading(Generic[_T]):
    """The constructor wants good files (UserError); bad ones that come later are told to `on_failure`, and counted.

    Files are polled: a mounted Secret is swapped by symbolic links, which file notifications miss.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        bytes_max: int,
        parse: Callable[[tuple[bytes, ...]], _T],
        on_failure: Callable[[str], None],
    ) -> None:
        self._paths = tuple(paths)
        self._bytes_max = bytes_max
        self._parse = parse
        self._on_failure = on_failure
        self._contents = self._read()
        self.value = parse(self._contents)
        self.generation = 1
        """Changes whenever the value does."""
        self.failures = 0
        """How often changed files were found bad."""
        self.error: str | None = None
        """What is wrong with the files as they stand now, None where they are the ones in force."""

    async def run(self, interval_seconds: float = _POLL_SECONDS) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                contents = await asyncio.to_thread(self._read)  # a hung disk must not hang the server
            except UserError as error:
                self._failed(error)
            else:
                self._take(contents)

    def reload(self) -> None:
        """Look at the files once, now."""
        try:
            self._take(self._read())
        except UserError as error:
            self._failed(error)

    def _take(self, contents: tuple[bytes, ...]) -> None:
        if contents != self._contents:
            try:
                self.value = self._parse(contents)
            except UserError as error:
                self._failed(error)
                return
            self._contents = contents
            self.generation += 1
        self.error = None

    def _failed(self, error: UserError) -> None:
        if str(error) != self.error:  # the same bad files are one failure, however often they are looked at
            self.failures += 1
            self.error = str(error)
            self._on_failure(self.error)

    def _read(self) -> tuple[bytes, ...]:
        return tuple(_content(path, self._bytes_max) for path in self._paths)


def regular_content(path: Path, bytes_max: int) -> bytes:
    """Return what a file holds, one byte more than `bytes_max` where it is longer; OSError where it is none."""
    # Opening a pipe or a device could block for ever.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "not a regular file")
    with path.open("rb") as file:
        return file.read(bytes_max + 1)


def _content(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
    if len(content) > bytes_max:
        raise UserError(f"{path}: larger than {bytes_max} bytes", "give the right file: none of ours is so large")
    return content
