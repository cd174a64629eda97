"""Files that a run has read, with their states at that time: whether one has changed since."""

from contextlib import suppress
from pathlib import Path

_State = tuple[tuple[Path, int, int], ...]


class ReadFiles:
    """Files and folders, each with the state of when it was added."""

    def __init__(self) -> None:
        self._states: dict[Path, _State] = {}

    def add(self, path: Path) -> None:
        """Add a file that is about to be read, or a folder with all that is in it."""
        self._states.setdefault(path, _state(path))

    def changed(self) -> bool:
        return any(_state(path) != before for path, before in self._states.items())


def _state(path: Path) -> _State:
    found = []
    for one in (path, *(sorted(path.rglob("*")) if path.is_dir() else ())):
        with suppress(OSError):  # absent, or just being replaced
            entry = one.stat()
            found.append((one, entry.st_mtime_ns, entry.st_size))
    return tuple(found)
