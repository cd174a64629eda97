"""A value made from files: read again when they change, swapped whole when they are good, the last good one kept."""

import asyncio
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from webhook.errors import UserError

_POLL_SECONDS = 5.0
_READINGS_MAX = 3
_T = TypeVar("_T")


class Reloading(Generic[_T]):
    """The constructor wants good files (UserError); `on_reading` hears of each change: what is wrong, None if nothing.

    Files are polled: a mounted Secret is swapped by symbolic links, which file notifications miss. `parse` is called in
    another thread but at the start: it only makes a value.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        bytes_max: int,
        parse: Callable[[tuple[bytes, ...]], _T],
        on_reading: Callable[[str | None], None],
    ) -> None:
        self._paths = tuple(paths)
        self._bytes_max = bytes_max
        self._parse = parse
        self._on_reading = on_reading
        self._contents = self._read()
        self.value = self._value_of(self._contents)
        self.generation = 1
        """Changes whenever the value does."""
        self.failures = 0
        """How often changed files were found bad."""
        self.error: str | None = None
        """What is wrong with the files as they stand now, None where they are the ones in force."""
        on_reading(None)

    async def run(self, interval_seconds: float = _POLL_SECONDS) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                found = await asyncio.to_thread(self._settled)  # neither a hung disk nor a long file hangs the server
            except UserError as error:
                self._failed(error)
            else:
                self._take(found)

    def reload(self) -> None:
        """Look at the files once, now."""
        try:
            self._take(self._parsed(self._read()))
        except UserError as error:
            self._failed(error)

    def _settled(self) -> tuple[tuple[bytes, ...], _T] | None:
        """Read files that changed until they read the same twice: they may be replaced in the middle of a reading."""
        contents = self._read()
        for _ in range(_READINGS_MAX if contents != self._contents else 0):
            before, contents = contents, self._read()
            if contents == before:
                break
        return self._parsed(contents)

    def _parsed(self, contents: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], _T] | None:
        """Return what files say that changed, beside what they hold; None where they are those in force."""
        return (contents, self._value_of(contents)) if contents != self._contents else None

    def _value_of(self, contents: tuple[bytes, ...]) -> _T:
        try:
            return self._parse(contents)
        except UserError:
            raise
        except Exception as error:  # whatever the parser did not foresee: without this nobody hears which files it is
            names, fault = ", ".join(map(str, self._paths)), type(error).__name__  # its words may quote the files
            raise UserError(f"{names}: invalid content: {fault}", "restore a file of the expected format") from error

    def _take(self, found: tuple[tuple[bytes, ...], _T] | None) -> None:
        """Swap all at once, in the event loop: nobody there sees a new value under the old generation."""
        if found is not None:
            self._contents, self.value = found
            self.generation += 1
        if found is not None or self.error is not None:
            self.error = None
            self._on_reading(None)

    def _failed(self, error: UserError) -> None:
        if str(error) != self.error:  # the same bad files are one failure, however often they are looked at
            self.failures += 1
            self.error = str(error)
            self._on_reading(self.error)

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
        raise UserError(f"{path}: larger than {bytes_max} bytes", "give the right file; it has at most that size")
    return content
