"""Test files on a command line: those given, and those in folders and their subfolders."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from webhook.errors import UserError
from webhook.policy_tests.loading import is_policy_test
from webhook.support.input_files import content

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def found_tests(given: Sequence[Path]) -> list[tuple[Path, bytes]]:
    """Return each test file with its content. UserError: it cannot be read, or a folder has none."""
    found: dict[Path, bytes] = {}
    for path in given:
        if not path.is_dir():
            found[path] = content(path, "give a test file, or a folder with some")
            continue
        within = {one: raw for one in _files(path) if is_policy_test(raw := content(one))}
        if not within:
            remedy = "give a folder with test files, which have `kind: PolicyTest`, or write one with --init"
            raise UserError(f"{path}: no test in it", remedy)
        found |= within
    return list(found.items())


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if Path(name).suffix in _SUFFIXES)
