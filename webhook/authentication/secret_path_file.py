"""The file of the paths that stand for an identity in reduced mode. What is wrong with it is said without its words."""

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from webhook.errors import UserError
from webhook.support.watched_file import Reloading

_FILE_BYTES_MAX = 1024
_PATHS_MAX = 2
# Of a path before a Service the API server wants each part to be as a DNS name is: no capital letters, no `_`.
_PATH = re.compile(r"[a-z0-9]{32,128}")
_DIFFERENT_CHARACTERS_MIN = 8
"""Of 32 hexadecimal digits by chance, fewer are different once in 25 million times: it was written by hand."""

_REMEDY = (
    "write one line of 32 to 128 small letters and digits, made by chance: "
    "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"
)


class SecretPathFile(Reloading[tuple[bytes, ...]]):
    """The SHA-256 of each path that is good now."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: _digests(contents[0], path), on_reading)


def read_paths(content: bytes, path: Path) -> tuple[str, ...]:
    """Return the paths, the one to be called by first; UserError without a word of them."""
    lines = [line.strip() for line in content.decode(errors="replace").splitlines()]
    found = [line for line in lines if line]
    if not 0 < len(found) <= _PATHS_MAX or len(set(found)) < len(found):
        raise UserError(
            f"{path}: holds {len(found)} lines: one path is wanted, or two different ones while it changes", _REMEDY
        )
    for number, line in enumerate(found, 1):
        if not _PATH.fullmatch(line):
            raise UserError(f"{path}: line {number} is no path: {len(line)} characters, or others", _REMEDY)
        if len(set(line)) < _DIFFERENT_CHARACTERS_MIN:
            raise UserError(f"{path}: line {number} could be guessed: it has few different characters", _REMEDY)
    return tuple(found)


def _digests(content: bytes, path: Path) -> tuple[bytes, ...]:
    return tuple(sha256(line.encode()).digest() for line in read_paths(content, path))
