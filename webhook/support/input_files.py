"""Bounded reading of input files and streams, and strict YAML and JSON documents."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import yaml

from webhook.core.document.yaml.manifest_loader import ManifestLoader, YamlDuplicateKeyError
from webhook.core.document.yaml.syntax_errors import describe_syntax_error
from webhook.core.json_depth import UNREADABLE_JSON, bound_depth
from webhook.core.plain_text import quote_value
from webhook.errors import UserError

INPUT_BYTES_MAX = 64 << 20
"""Maximum size of a file, stream, line of events or response that a command reads; the same in `certs.files`."""

_VALUES_MAX = 1_000_000
_KEYS_SHOWN = 3


class _DuplicateKeyError(Exception):
    """A duplicate key in a JSON object, of which parsers use different values."""


def get_standard_input() -> BinaryIO:
    """Return standard input as a stream of bytes, for any encoding of the terminal."""
    if sys.stdin is None:
        raise UserError("-: standard input is closed", "give a file, or pipe something in")
    return sys.stdin.buffer


@contextmanager
def open_lines(path: Path) -> Iterator[BinaryIO]:
    """Yield a file of JSON lines, `-` being standard input; UserError if it cannot be read."""
    if str(path) == "-":
        yield get_standard_input()
        return
    try:
        lines = path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give a readable file of JSON lines") from None
    with lines:
        yield lines


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_bounded(stream: _Readable, name: object) -> bytes:
    """Read a whole stream; UserError if it is larger than INPUT_BYTES_MAX."""
    content = stream.read(INPUT_BYTES_MAX + 1)
    if len(content) > INPUT_BYTES_MAX:
        raise _build_too_long_error(name)
    return content


def read_bounded_lines(stream: BinaryIO, name: object) -> Iterator[bytes]:
    """Yield the lines of a stream of any length; UserError for a line that is too long."""
    while line := stream.readline(INPUT_BYTES_MAX + 1):
        if len(line) > INPUT_BYTES_MAX:
            raise _build_too_long_error(f"{name}: a line")
        yield line


def _build_too_long_error(name: object) -> UserError:
    return UserError(f"{name}: more than {INPUT_BYTES_MAX >> 20} MiB", "give the right file, or several smaller ones")


def read_content(path: Path, remedy: str = "give a readable file") -> bytes:
    """Return the bytes of a file, or of standard input for `-`; UserError if it cannot be read or is too large."""
    try:
        if str(path) == "-":
            return read_bounded(get_standard_input(), "-")
        with path.open("rb") as stream:
            return read_bounded(stream, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}", remedy) from None
    except ValueError as error:  # a path with a NUL
        raise UserError(f"{quote_value(str(path))}: cannot be read: {error}", remedy) from None


def read_documents(path: Path) -> list[Any]:
    """Return the YAML or JSON documents of a file as JSON values; an empty document is None."""
    try:
        text = read_content(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8", "save the file as UTF-8") from None
    found: list[Any] = []
    try:
        # JSON first: `kubectl get -o json` writes large files, and YAML is parsed much more slowly.
        return _parse_json_stream(text)
    except _DuplicateKeyError as error:
        raise UserError(f"{path}: {error}", "keep one of the two") from None
    except RecursionError:
        raise _build_depth_error(path) from None
    except (msgspec.MsgspecError, ValueError):
        pass
    try:
        found.extend(yaml.load_all(text, ManifestLoader))
        _refuse_expansion(found)
        return [bound_depth(msgspec.json.decode(msgspec.json.encode(document))) for document in found]
    except yaml.YAMLError as error:
        raise _build_yaml_error(error, text, path, len(found)) from None
    except RecursionError:
        raise _build_depth_error(path) from None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}", "fix the syntax") from None


def _build_depth_error(path: Path) -> UserError:
    return UserError(f"{path}: not YAML: nested too deeply", "flatten it")


def _parse_number(text: str) -> float | str:
    """Return a number, or its text if a float cannot represent it: amounts are exact."""
    value = float(text)
    return value if isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


_decoder = msgspec.json.Decoder(float_hook=_parse_number)
_scanner = json.JSONDecoder()
_MARK = re.compile(r"[^ \t\r\n]")  # JSON's white space


def _parse_json_stream(text: str) -> list[Any]:
    """Parse JSON documents: one, or several one after another, which kubectl reads and `jq -c .items[]` prints."""
    try:
        return [_parse_json(text)]
    except (*UNREADABLE_JSON, ValueError):
        return [_parse_json(part) for part in _split_json(text)]


def _split_json(text: str) -> Iterator[str]:
    """Yield the texts of JSON documents one after another. ValueError: there is other text."""
    end = 0
    while found := _MARK.search(text, end):
        _, end = _scanner.raw_decode(text, found.start())
        yield text[found.start() : end]


def _parse_json(text: str) -> Any:
    """Parse a JSON document with msgspec, which is strict and fast, and refuse duplicate keys, which it accepts."""
    document = bound_depth(_decoder.decode(text))
    json.loads(text, object_pairs_hook=_refuse_duplicates, parse_int=len, parse_float=len)
    return document


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = {key for key, _ in pairs}
    if len(seen) == len(pairs):
        return
    keys = [key for key, _ in pairs]
    key = next(key for index, key in enumerate(keys) if key in keys[:index])
    beside = ", ".join(map(quote_value, list(dict.fromkeys(keys))[:_KEYS_SHOWN]))
    raise _DuplicateKeyError(f"the key {quote_value(key)} is duplicated in one object, which begins with {beside}")


def _build_yaml_error(error: yaml.YAMLError, text: str, path: Path, before: int) -> UserError:
    """Return the UserError of a YAML syntax error; `before` is the number of valid documents before it."""
    which = f"{path}: document {before + 1}" if before else str(path)
    found = describe_syntax_error(error, text)
    if isinstance(error, YamlDuplicateKeyError):
        found = found._replace(reason=str(error.problem), remedy="keep one of the two")
    return UserError(f"{which}: line {found.line}, column {found.column}: {found.reason}", found.remedy)


def _refuse_expansion(documents: list[Any]) -> None:
    """Refuse aliases that expand a short file into more than a cluster holds; ValueError."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = _VALUES_MAX  # counts if an alias inside refers to the node itself
            inner = (*node.keys(), *node.values()) if isinstance(node, dict) else node
            sizes[id(node)] = 1 + sum(size(part) for part in inner)
        return sizes[id(node)]

    if sum(size(document) for document in documents) > _VALUES_MAX:
        raise ValueError(f"expands to more than {_VALUES_MAX} values: use fewer aliases or several files")
