"""Decoding of API server objects: only a field of an unexpected type is left out, and reported."""

from typing import Any, TypeVar

import msgspec

from webhook.adapters.kubernetes.api.field_faults import EACH, has_child, list_children, parse_path, split_fault
from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign

T = TypeVar("T")


def decode_fields(body: bytes | msgspec.Raw, kind: type[T]) -> tuple[T, dict[str, str]]:
    """Return an object, and each field that was left out, with the reason. UNREADABLE_JSON: nothing can be read."""
    try:
        return decode_foreign(body, kind), {}
    except msgspec.ValidationError:
        return _drop_bad_fields(decode_foreign(body, object), kind)


def decode_items(body: bytes, kind: type[T]) -> tuple[tuple[T, ...], dict[str, str]]:
    """Return the objects of a list, and the fields left out of them. UNREADABLE_JSON: it is no list."""
    found, lost = [], {}
    for item in decode_foreign(body, _Items).items or ():
        try:
            decoded, fields = decode_fields(item, kind)
        except UNREADABLE_JSON as error:
            lost[_find_name(item)] = str(error)
            continue
        found.append(decoded)
        lost |= {f"{_find_name(item)} {field}": reason for field, reason in fields.items()}
    return tuple(found), lost


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Items(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


def _find_name(item: msgspec.Raw) -> str:
    """Return the name of an object in messages, "" if it has none."""
    try:
        return decode_foreign(item, _Named).metadata.name
    except UNREADABLE_JSON:
        return ""


def _drop_bad_fields(document: Any, kind: type[T]) -> tuple[T, dict[str, str]]:
    lost: dict[str, str] = {}
    while True:
        try:
            return msgspec.json.decode(msgspec.json.encode(document), type=kind), lost  # raw fields are no values
        except msgspec.ValidationError as error:
            path, what = split_fault(error)
            tokens = parse_path(path)
            if not tokens or not _drop(document, tokens):
                raise
            lost[path.removeprefix("$.")] = what


def _drop(document: Any, tokens: tuple[str | int, ...]) -> bool:
    """Delete what is at a path; return whether anything was there."""
    *parents, last = tokens
    places = [document]
    for token in parents:
        places = [child for place in places for child in list_children(place, token)]
    is_dropped = False
    for place in places:
        if last == EACH and isinstance(place, dict) and place:
            place.clear()
            is_dropped = True
        elif has_child(place, last):
            del place[last]
            is_dropped = True
    return is_dropped
