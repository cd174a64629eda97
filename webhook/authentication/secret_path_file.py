"""Secret path file of reduced mode: one path, or two during a rotation. Errors show none of its content."""

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile

_FILE_BYTES_MAX = 1024
_PATHS_MAX = 2
# The API server requires each segment of a Service's path to be a DNS name: no uppercase letters, no `_`.
_PATH = re.compile(r"[a-z0-9]{32,128}")
_DIFFERENT_CHARACTERS_MIN = 8
"""32 random hexadecimal digits have fewer distinct ones once in 25 million times: such a path is not random."""

_REMEDY = (
    "write one line of 32 to 128 random lowercase letters and digits: "
    "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"
)


class SecretPathFile(WatchedFile[tuple[bytes, ...]]):
    """SHA-256 of each currently accepted path."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: _digests(contents[0], path), on_reading)


def read_paths(content: bytes, path: Path) -> tuple[str, ...]:
    """Return the paths, first the one for the webhook configurations; UserError."""
    lines = enumerate(content.decode(errors="replace").splitlines(), 1)
    numbered = [(number, line.strip()) for number, line in lines if line.strip()]
    found = [line for _, line in numbered]
    if not 0 < len(found) <= _PATHS_MAX or len(set(found)) < len(found):
        raise UserError(
            f"{path}: holds {len(found)} lines, and not one path, or two different ones while it changes", _REMEDY
        )
    for number, line in numbered:
        if not _PATH.fullmatch(line):
            raise UserError(
                f"{path}:{number}:1: (not shown): {len(line)} characters, or other ones than a path has", _REMEDY
            )
        if len(set(line)) < _DIFFERENT_CHARACTERS_MIN:
            raise UserError(
                f"{path}:{number}:1: (not shown): could be guessed: it has few different characters", _REMEDY
            )
    return tuple(found)


def _digests(content: bytes, path: Path) -> tuple[bytes, ...]:
    return tuple(sha256(line.encode()).digest() for line in read_paths(content, path))
