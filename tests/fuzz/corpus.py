"""Corpora: the inputs of each target in the repository, few and small, and their choice from many."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.catalogue import Target

FOLDER = Path(__file__).with_name("corpora")
FILES_MAX = 50
BYTES_MAX = 100_000
"""Of all corpora together."""
_ENTRY_BYTES_MAX = 4096
_WATCHED = ("/webhook/", "/certs/")


def list_files(name: str) -> list[Path]:
    return sorted(path for path in (FOLDER / name).glob("*") if path.is_file())


def read_entries(name: str) -> list[bytes]:
    return [path.read_bytes() for path in list_files(name)]


def write_entry(folder: Path, data: bytes, prefix: str = "") -> Path:
    """Write an input under a name of its content; `prefix` says why it must stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{prefix}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


def choose_entries(target: Target, inputs: Iterable[bytes], bytes_max: int, kept: Sequence[bytes] = ()) -> list[bytes]:
    """Return few inputs that reach what all of them reach, as far as the limits allow: the most for its size first.

    `kept` stay beside them, and count.
    """
    small = sorted({data for data in inputs if len(data) <= _ENTRY_BYTES_MAX} - {*kept})
    reached = {data: trace_steps(target, data) for data in small}
    chosen: list[bytes] = []
    missing = set().union(*reached.values()).difference(*(trace_steps(target, data) for data in kept))
    while missing and reached and len(chosen) + len(kept) < FILES_MAX:
        best = max(reached, key=lambda data: (len(reached[data] & missing) / (len(data) + 100), -len(data), data))
        if not reached[best] & missing:
            break
        found = reached.pop(best)
        if sum(map(len, (*chosen, *kept, best))) > bytes_max:
            continue
        missing -= found
        chosen.append(best)
    return chosen


def trace_steps(target: Target, data: bytes) -> set[tuple[str, int, int]]:
    """Return the steps from line to line that an input takes through the product."""
    steps: set[tuple[str, int, int]] = set()
    last: dict[int, int] = {}

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            steps.add((frame.f_code.co_filename, last.get(id(frame), 0), frame.f_lineno))
            last[id(frame)] = frame.f_lineno
        return step

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        last.pop(id(frame), None)
        return step if any(part in frame.f_code.co_filename for part in _WATCHED) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        target.check(data)
    finally:
        sys.settrace(before)
    return steps
