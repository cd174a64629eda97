"""Changes of inputs that keep most of their grammar: of places of JSON, of lines, of bytes."""

import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.core.admission.review import list_places
from tests.fuzz.catalogue import Form, Target

Mutate = Callable[[bytes], bytes]
"""Changes single bytes."""
_NUMBERS = (0, -1, 1, 1.5, 0.1, -0.0, 1e308, 1e-320, 2**31, 2**53, 2**63, 2**64, 10**40)
_TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "\x1b[2J",
    "\u2028",
    "\u202e",
    "\ud800",
    "é",
    "x" * 300,
    "*",
    "a/b",
    "a.b/c",
    "-",
    "0",
    "9" * 5000,
)
_VALUES: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], {"": None}, *_NUMBERS, *_TEXTS)
_DEPTH_MAX = 3000
_WORD = re.compile(r"[\w.%/-]+")


def mutate(target: Target, data: bytes, size_max: int, seed: int, mutate_bytes: Mutate | None = None) -> bytes:
    """Return another input for a target, the same for the same seed but for what `mutate_bytes` does."""
    chosen = random.Random(seed)  # noqa: S311  an input, not a secret
    changes: list[Mutate] = [mutate_bytes or (lambda data: change_bytes(data, chosen, target.words))]
    if target.form is Form.JSON:
        changes += [lambda data: change_json(data, chosen, target.words)] * 3
    if target.form is Form.LINES:
        changes += [lambda data: change_lines(data, chosen, target.words)] * 3
    result = data
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        result = chosen.choice(changes)(result)[:size_max]
    return result


def change_bytes(data: bytes, chosen: random.Random, words: Sequence[str]) -> bytes:
    """Return bytes with a part changed, removed, doubled, or replaced by a word."""
    start = chosen.randrange(len(data) + 1)
    end = min(len(data), start + chosen.choice((0, 0, 1, 1, 2, 4, 16)))
    part = data[start:end]
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: b"",
        lambda: part * 2,
        lambda: chosen.randbytes(max(1, len(part))),
        lambda: part + chosen.choice(words).encode(),
        lambda: data[chosen.randrange(len(data) + 1) :][:16],
    )
    return data[:start] + chosen.choice(changes)() + data[end:]


def change_json(data: bytes, chosen: random.Random, words: Sequence[str]) -> bytes:
    """Return a document with one place changed; what stands before the document stays. Other bytes stay as they are."""
    start = min((at for at in (data.find(b"{"), data.find(b"[")) if at >= 0), default=-1)
    with suppress(ValueError, RecursionError):  # no document, or one that is nested too deeply to be changed
        document = json.loads(data[start:].decode("utf-8", "surrogateescape")) if start >= 0 else None
        places = [place for place in list_places(document) if place]
        if places:
            *path, last = chosen.choice(places)
            _change_place(document, _find(document, path), last, chosen, words)
            text = json.dumps(document, ensure_ascii=chosen.random() < 0.8, separators=(",", ":"))
            return data[:start] + _deepen(text, chosen).encode("utf-8", "surrogatepass")
    return change_bytes(data, chosen, words)


def _change_place(document: Any, parent: Any, last: Any, chosen: random.Random, words: Sequence[str]) -> None:
    kind = chosen.randrange(7)
    value = parent[last]
    if kind == 0:
        del parent[last]
    elif kind == 1:
        parent[last] = chosen.choice(_VALUES)
    elif kind == 2:
        parent[last] = chosen.choice(words)
    elif kind == 3:  # a copy of another place
        parent[last] = json.loads(json.dumps(_find(document, chosen.choice(list_places(document)))))
    elif isinstance(parent, list):
        parent.insert(last, json.loads(json.dumps(value)))
    elif kind == 4:
        parent[chosen.choice(words)] = value
    elif kind == 5:
        parent[chosen.choice(words)] = parent.pop(last)
    elif isinstance(value, str):
        parent[last] = change_bytes(value.encode("utf-8", "replace"), chosen, words).decode("utf-8", "replace")


def _deepen(text: str, chosen: random.Random) -> str:
    """Return a text in which a value, now and then, is nested deeper than any reader follows."""
    if chosen.random() < 0.99:
        return text
    depth = chosen.randrange(_DEPTH_MAX)
    return text.replace("null", f"{'[' * depth}{']' * depth}", 1)


def _find(document: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        document = document[key]
    return document


def change_lines(data: bytes, chosen: random.Random, words: Sequence[str]) -> bytes:
    """Return a text with a line removed, doubled, moved, indented, or with a word of it replaced."""
    lines = data.split(b"\n")
    at, other = chosen.randrange(len(lines)), chosen.randrange(len(lines))
    kind = chosen.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at] = b"  " + lines[at]
    elif kind == 3:
        lines[at] = lines[at].removeprefix(b"  ")
    elif kind == 4:
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines.insert(at, indent + chosen.choice(words).encode())
    elif kind == 5:  # a block of lines
        lines[other:other] = lines[at : at + chosen.randrange(1, 6)]
    else:
        lines[at] = _replace_word(lines[at], chosen, words)
    return b"\n".join(lines)


def _replace_word(line: bytes, chosen: random.Random, words: Sequence[str]) -> bytes:
    text = line.decode("utf-8", "replace")
    found = list(_WORD.finditer(text))
    if not found:
        return line
    match = chosen.choice(found)
    texts = [*words, *map(str, _NUMBERS), *_TEXTS[:-1], match[0] * 2]
    text = text[: match.start()] + chosen.choice(texts) + text[match.end() :]
    return text.encode("utf-8", "replace")
