"""Differences between two JSON documents, by JSON Pointer, in small pieces."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import msgspec

from webhook.core.patch import format_pointer

_TERMS = "nodeSelectorTerms"  # changes within a term are reported by expression

Path = tuple[str | int, ...]


class Piece(NamedTuple):
    """One small value: an amount, an expression, a toleration. Equal ones are equal at any index."""

    place: Path
    """Path without the indexes of list entries, which shift."""
    value: str
    """As JSON; empty for a removal."""


class JsonChange(NamedTuple):
    """A removal (`before` alone), an addition (`after` alone) or a replacement (both): pointers into either document.

    `pieces`: its parts, by pointer into the later document, or for a removal into the former.
    `former`: the replaced value; None if there was none, or an empty one.
    """

    before: str | None
    after: str | None
    pieces: tuple[tuple[str, Piece], ...]
    former: Any = None


def find_changes(before: Any, after: Any) -> list[JsonChange]:
    """Return the changes from one document to the other, in the later one's order."""
    return list(_compare(before, after, (), ()))


def _compare(before: Any, after: Any, was: Path, now: Path) -> Iterator[JsonChange]:
    if _encode(before) == _encode(after):
        return
    if before in ({}, []) or after in ({}, []):
        # `{}` and `[]` are one line of YAML, which disappears once the value is not empty.
        yield JsonChange(format_pointer(*was), format_pointer(*now), tuple(_list_pieces(after, now)))
    elif isinstance(before, dict) and isinstance(after, dict) and _has_same_order(before, after):
        for key in before:
            if key not in after:
                yield _build_removal((*was, key))
        for key, value in after.items():
            if key in before:
                yield from _compare(before[key], value, (*was, key), (*now, key))
            else:
                yield _build_addition(value, (*now, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(before, after, was, now)
    else:
        yield JsonChange(format_pointer(*was), format_pointer(*now), tuple(_list_pieces(after, now)), before)


def _has_same_order(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether the common fields are in the same order; if not, the whole object counts as replaced."""
    return [key for key in before if key in after] == [key for key in after if key in before]


def _compare_lists(before: list[Any], after: list[Any], was: Path, now: Path) -> Iterator[JsonChange]:
    matcher = SequenceMatcher(
        None, [_encode(entry) for entry in before], [_encode(entry) for entry in after], autojunk=False
    )
    for tag, old, old_end, new, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        # Entries are changed in place; new ones are appended.
        paired = min(old_end - old, new_end - new)
        for index in range(paired):
            yield from _compare(before[old + index], after[new + index], (*was, old + index), (*now, new + index))
        for index in range(old + paired, old_end):
            yield _build_removal((*was, index))
        for index in range(new + paired, new_end):
            yield _build_addition(after[index], (*now, index))


def _build_removal(was: Path) -> JsonChange:
    return JsonChange(format_pointer(*was), None, ((format_pointer(*was), Piece(_generalize_path(was), "")),))


def _build_addition(value: Any, now: Path) -> JsonChange:
    return JsonChange(None, format_pointer(*now), tuple(_list_pieces(value, now)))


def _list_pieces(value: Any, path: Path) -> Iterator[tuple[str, Piece]]:
    is_entry = bool(path) and isinstance(path[-1], int) and path[-2] != _TERMS
    if isinstance(value, dict) and value and not is_entry:
        for key, item in value.items():
            yield from _list_pieces(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _list_pieces(item, (*path, index))
    else:
        yield format_pointer(*path), Piece(_generalize_path(path), _encode(value))


def _generalize_path(path: Path) -> Path:
    """Return the path with `*` for indexes. Containers keep their index: rewriting adds none."""
    return tuple(
        token if isinstance(token, str) or path[index - 1] in {"containers", "initContainers"} else "*"
        for index, token in enumerate(path)
    )


def _encode(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
