"""Test files of a command line: those given or found in folders, and whether any has changed since it was read."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from webhook.errors import UserError
from webhook.policy_tests.loading import is_policy_test
from webhook.support.input_files import read_content

_State = tuple[tuple[Path, int, int], ...]


class ReadFiles:
    """Files and folders, each with its state at the time when it was added."""

    def __init__(self) -> None:
        self._states: dict[Path, _State] = {}

    def add(self, path: Path) -> None:
        """Add a file that is about to be read, or a folder with all its files."""
        self._states.setdefault(path, _read_state(path))

    def has_changed(self) -> bool:
        return any(_read_state(path) != before for path, before in self._states.items())


def _read_state(path: Path) -> _State:
    found = []
    for file in (path, *(sorted(path.rglob("*")) if path.is_dir() else ())):
        with suppress(OSError, ValueError):  # absent, just being replaced, or a path with a NUL, which reading refuses
            entry = file.stat()
            found.append((file, entry.st_mtime_ns, entry.st_size))
    return tuple(found)


_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def find_tests(given: Sequence[Path]) -> list[tuple[Path, bytes]]:
    """Return each test file with its content. UserError: it cannot be read, or a folder has none."""
    found: dict[Path, bytes] = {}
    for path in given:
        if not path.is_dir():
            found[path] = read_content(path, "give a test file, or a folder with some")
            continue
        within = {file: raw for file in _list_files(path) if is_policy_test(raw := read_content(file))}
        if not within:
            remedy = "give a folder with test files, which have `kind: PolicyTest`, or write one with --init"
            raise UserError(f"{path}: no test in it", remedy)
        found |= within
    return list(found.items())


def _list_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if Path(name).suffix in _SUFFIXES)
