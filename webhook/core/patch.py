"""JSON Patch (RFC 6902): the operations add, replace, remove and copy."""

from binascii import b2a_base64
from collections.abc import Iterable, Sequence, Sized
from functools import cached_property, lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field


class PatchOperation(Struct, frozen=True):
    """One operation; `path` is an escaped JSON Pointer. A removal has no value, a copy has a `source`."""

    op: str
    path: str
    value: Any = UNSET
    source: str | UnsetType = field(default=UNSET, name="from")


_encoder = msgspec.json.Encoder()


class Patch(tuple[PatchOperation, ...]):  # noqa: SLOT001  cached_property keeps its value in __dict__
    """The operations of one patch, in order."""

    @cached_property
    def encoded(self) -> Raw:
        """The patch as encoded in a response: JSON in base64. Pods of one controller share it."""
        return Raw(_encoder.encode(_encoder.encode(self)))

    @cached_property
    def _start(self) -> bytes:
        """The encoded patch without its end, for patches that go on: three bytes of JSON are four of base64."""
        text = _encoder.encode(self)[:-1] + (b"," if self else b"")
        return b'"' + b2a_base64(text + b" " * (-len(text) % 3), newline=False)

    def extend(self, operations: Sequence[PatchOperation]) -> "Patch":
        """Return the patch with more operations, of which each Pod of a controller has its own."""
        extended = Patch((*self, *operations))
        if operations:
            end = _encoder.encode(operations)[1:]
            extended.encoded = Raw(b'%b%b"' % (self._start, b2a_base64(end, newline=False)))
        return extended


NO_PATCH = Patch()


@lru_cache(maxsize=8192)
def format_pointer(*tokens: str | int) -> str:
    """Return the JSON Pointer (RFC 6901) of `tokens`."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)


def add(value: Any, *path: str | int) -> PatchOperation:
    return PatchOperation("add", format_pointer(*path), value)


def replace(value: Any, *path: str | int) -> PatchOperation:
    return PatchOperation("replace", format_pointer(*path), value)


def remove(*path: str | int) -> PatchOperation:
    return PatchOperation("remove", format_pointer(*path))


def copy(source: str, *path: str | int) -> PatchOperation:
    return PatchOperation("copy", format_pointer(*path), source=source)


def append(values: Sequence[Any], existing: Sized | None, *path: str | int) -> list[PatchOperation]:
    """Return the operations that append `values` to a list, or add the whole list if there is none."""
    if not values:
        return []
    return [add(list(values), *path)] if existing is None else [add(value, *path, "-") for value in values]


def apply(operations: Iterable[PatchOperation], document: Any) -> None:
    """Apply `operations` to a JSON document, in place. LookupError: an operation does not fit the document.

    Values are copied: patches share the values of a policy's plan.
    """
    for operation in operations:
        parent, token = _find_place(document, operation.path)
        if operation.op == "remove":
            del parent[token]
            continue
        value = operation.value
        if isinstance(operation.source, str):
            holder, key = _find_place(document, operation.source)
            value = holder[key]
        value = msgspec.json.decode(msgspec.json.encode(value))
        if operation.op != "replace" and isinstance(parent, list):
            parent.insert(token, value)
        else:
            parent[token] = value


def _find_place(document: Any, path: str) -> tuple[Any, Any]:
    """Return the map or list that a pointer ends in, and the key or index in it; `-` is the end of a list."""
    *parents, last = parse_pointer(path)
    for token in parents:
        document = document[int(token) if isinstance(document, list) else token]
    if not isinstance(document, list):
        return document, last
    return document, len(document) if last == "-" else int(last)


@lru_cache(maxsize=8192)
def parse_pointer(path: str) -> tuple[str, ...]:
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:])


def set_keys(path: tuple[str, ...], existing: dict[str, str] | None, wanted: dict[str, str]) -> list[PatchOperation]:
    """Return the operations that set the `wanted` entries of a map, or add the whole map if there is none."""
    if existing is None:
        return [add(wanted, *path)] if wanted else []
    return [
        (replace if key in existing else add)(value, *path, key)
        for key, value in wanted.items()
        if existing.get(key) != value
    ]
