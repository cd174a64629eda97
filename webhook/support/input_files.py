"""Bounded reading of whatever a command is given, and YAML and JSON as the documents that would travel."""

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import yaml

from webhook.core.document.yaml.syntax_errors import in_words
from webhook.errors import UserError
from webhook.support import sanitize

LARGEST_BYTES = 64 << 20
"""What a command reads of one file, pipe, line of events or answer at most; `certs.files` has the same bound."""

_LARGEST_VALUES = 1_000_000
_KEYS_SHOWN = 3


class _TwiceError(Exception):
    """A key stands twice in one JSON object: two readers could take it for two things."""


class _YamlTwiceError(yaml.MarkedYAMLError):
    """The same in YAML."""


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: a timestamp is a string, as it is in the JSON that an API server gets.

    A key that stands twice in a mapping is an error: the second would silently win.
    """

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {sanitize.value(key.value)} stands twice"
                raise _YamlTwiceError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def standard_input() -> BinaryIO:
    """Return standard input as bytes: what it is encoded in is the file's affair, not the terminal's."""
    if sys.stdin is None:
        raise UserError("-: standard input is closed", "give a file, or pipe something in")
    return sys.stdin.buffer


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def bounded(stream: _Readable, name: object) -> bytes:
    """Return all that a stream holds; UserError where that is more than any input of ours."""
    content = stream.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise _too_long(name)
    return content


def bounded_lines(stream: BinaryIO, name: object) -> Iterator[bytes]:
    """Yield the lines of a stream, however many; UserError at one that is too long."""
    while line := stream.readline(LARGEST_BYTES + 1):
        if len(line) > LARGEST_BYTES:
            raise _too_long(f"{name}: a line")
        yield line


def _too_long(name: object) -> UserError:
    return UserError(f"{name}: more than {LARGEST_BYTES >> 20} MiB", "give the right file, or several smaller ones")


def content(path: Path, remedy: str = "give a readable file") -> bytes:
    """Return the bytes of a file, `-` being standard input; UserError where it cannot be read or is too long."""
    try:
        if str(path) == "-":
            return bounded(standard_input(), "-")
        with path.open("rb") as stream:
            return bounded(stream, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}", remedy) from None


def documents(path: Path) -> list[Any]:
    """Return the YAML or JSON documents of a file, as the JSON that would travel; an empty one is None."""
    try:
        text = content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8", "save the file as UTF-8") from None
    found: list[Any] = []
    try:
        # What `kubectl get -o json` writes is long, and YAML is read a hundred times as slowly.
        return [_json(text)]
    except _TwiceError as error:
        raise UserError(f"{path}: {error}", "keep one of the two") from None
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    try:
        found.extend(yaml.load_all(text, _Loader))
        _refuse_expansion(found)
        return [msgspec.json.decode(msgspec.json.encode(document)) for document in found]
    except yaml.YAMLError as error:
        raise _no_yaml(error, text, path, len(found)) from None
    except RecursionError:
        raise UserError(f"{path}: not YAML: nested too deeply", "flatten it") from None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None


def _number(text: str) -> float | str:
    """Return a number, or its text where a float cannot hold it: an amount is exact, whatever its digits."""
    value = float(text)
    return value if isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


_decoder = msgspec.json.Decoder(float_hook=_number)


def _json(text: str) -> Any:
    """Return a JSON document; msgspec is strict and quick, and passes over a key that stands twice."""
    document = _decoder.decode(text)
    json.loads(text, object_pairs_hook=_refuse_twice, parse_int=len, parse_float=len)
    return document


def _refuse_twice(pairs: list[tuple[str, Any]]) -> None:
    seen = {key for key, _ in pairs}
    if len(seen) == len(pairs):
        return
    keys = [key for key, _ in pairs]
    key = next(key for index, key in enumerate(keys) if key in keys[:index])
    beside = ", ".join(map(sanitize.value, list(dict.fromkeys(keys))[:_KEYS_SHOWN]))
    raise _TwiceError(f"the key {sanitize.value(key)} stands twice in one object, which begins with {beside}")


def _no_yaml(error: yaml.YAMLError, text: str, path: Path, before: int) -> UserError:
    """Say where the syntax is wrong: `before` documents were good."""
    which = f"{path}: document {before + 1}" if before else str(path)
    found = in_words(error, text)
    if isinstance(error, _YamlTwiceError):
        found = found._replace(reason=str(error.problem), remedy="keep one of the two")
    return UserError(f"{which}: line {found.line}, column {found.column}: {found.reason}", found.remedy)


def _refuse_expansion(documents: list[Any]) -> None:
    """Refuse aliases that would unfold a short file into more than any cluster holds; ValueError."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = _LARGEST_VALUES  # what an alias to itself finds here
            inner = (*node.keys(), *node.values()) if isinstance(node, dict) else node
            sizes[id(node)] = 1 + sum(size(one) for one in inner)
        return sizes[id(node)]

    if sum(size(document) for document in documents) > _LARGEST_VALUES:
        raise ValueError(f"unfolds to more than {_LARGEST_VALUES} values: use fewer aliases or several files")
