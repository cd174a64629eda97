"""Watched files: a value parsed from files, reloaded as a whole when they change; the last valid value is kept."""

import asyncio
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from webhook.errors import UserError
from webhook.support.condition import Condition

_POLL_SECONDS = 5.0
_READINGS_MAX = 3
_T = TypeVar("_T")


class WatchedFile(Generic[_T]):
    """A value that is reloaded. The constructor raises UserError for invalid files.

    `on_reading` receives the result of each change: the error, or None. `parse` is called in another thread, except at
    the start, and must have no side effects. Files are polled: a mounted Secret is swapped by symbolic links, which
    file notifications miss.
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
        self._contents, self.value = self._load_first()
        self.generation = 1
        """Changes whenever the value does."""
        self.failures = 0
        """Number of changes to invalid files."""
        self._failure = Condition(self._on_rejected, lambda _: None)
        on_reading(None)

    @property
    def error(self) -> str | None:
        """The error in the files' current content; None if it is in use."""
        return self._failure.reason

    async def run(self, interval_seconds: float = _POLL_SECONDS) -> None:
        """Poll the files until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                found = await asyncio.to_thread(self._read_settled)  # a hung disk must not block the event loop
            except UserError as error:
                self._failure.enter(str(error))
            else:
                self._take(found)

    def reload(self) -> None:
        """Check the files once, now."""
        try:
            self._take(self._parse_changed(self._read()))
        except UserError as error:
            self._failure.enter(str(error))

    def _load_first(self) -> tuple[tuple[bytes, ...], _T]:
        """Read and parse the files; repeat it if they are invalid and were replaced meanwhile."""
        contents = self._read()
        for _ in range(_READINGS_MAX):
            try:
                return contents, self._parse_value(contents)
            except UserError:
                before, contents = contents, self._read()
                if contents == before:
                    raise
        return contents, self._parse_value(contents)

    def _read_settled(self) -> tuple[tuple[bytes, ...], _T] | None:
        """Reread changed files until two reads agree: files may be replaced during a read."""
        contents = self._read()
        for _ in range(_READINGS_MAX if contents != self._contents else 0):
            before, contents = contents, self._read()
            if contents == before:
                break
        return self._parse_changed(contents)

    def _parse_changed(self, contents: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], _T] | None:
        """Return contents and parsed value of changed files; None if they are unchanged."""
        return (contents, self._parse_value(contents)) if contents != self._contents else None

    def _parse_value(self, contents: tuple[bytes, ...]) -> _T:
        try:
            return self._parse(contents)
        except UserError:
            raise
        except Exception as error:  # unexpected: name the files in the error
            names, fault = ", ".join(map(str, self._paths)), type(error).__name__  # its message may quote the files
            raise UserError(f"{names}: invalid content: {fault}", "restore a file of the expected format") from error

    def _take(self, found: tuple[tuple[bytes, ...], _T] | None) -> None:
        """Replace the value in the event loop, so that no task sees a new value with the old generation."""
        if found is not None:
            self._contents, self.value = found
            self.generation += 1
        if found is not None or self.error is not None:
            self._failure.leave()
            self._on_reading(None)

    def _on_rejected(self, error: str) -> None:
        self.failures += 1
        self._on_reading(error)

    def _read(self) -> tuple[bytes, ...]:
        return tuple(_read_content(path, self._bytes_max) for path in self._paths)


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return at most `bytes_max` + 1 bytes of a file. Raise OSError if it is not a regular file."""
    # Opening a pipe or a device could block forever.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "not a regular file")
    with path.open("rb") as file:
        return file.read(bytes_max + 1)


def _read_content(path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
    if len(content) > bytes_max:
        raise UserError(f"{path}: larger than {bytes_max} bytes", "give the right file; it has at most that size")
    return content
