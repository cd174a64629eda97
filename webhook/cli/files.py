"""Reads YAML and JSON files as the documents that would travel to an API server."""

import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import yaml

from webhook.errors import UserError

_LARGEST_VALUES = 1_000_000


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: a timestamp is a string, as it is in the JSON that an API server gets."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def standard_input() -> BinaryIO:
    """Return standard input as bytes: what it is encoded in is the file's affair, not the terminal's."""
    if sys.stdin is None:
        raise UserError("-: standard input is closed", "give a file, or pipe something in")
    return sys.stdin.buffer


def documents(path: Path) -> list[Any]:
    """Return the YAML or JSON documents of a file, as the JSON that would travel; an empty one is None."""
    text = _read(path)
    found: list[Any] = []
    try:
        # What `kubectl get -o json` writes is long, and YAML is read a hundred times as slowly.
        return [msgspec.json.decode(text)]
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        found.extend(yaml.load_all(text, _Loader))
        _refuse_expansion(found)
        return [msgspec.json.decode(msgspec.json.encode(document)) for document in found]
    except yaml.YAMLError as error:
        raise UserError(f"{path}: {_place(error, len(found))}", "mend the syntax") from None
    except RecursionError:
        raise UserError(f"{path}: not YAML: nested too deeply", "flatten it") from None
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None


def _read(path: Path) -> str:
    """Return a file's text, `-` being standard input."""
    try:
        raw = standard_input().read() if str(path) == "-" else path.read_bytes()
        return raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}", "give a readable file") from None


def _place(error: yaml.YAMLError, before: int) -> str:
    """Say where the syntax is wrong: `before` documents were good."""
    which = f"document {before + 1}: " if before else ""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{which}not YAML: {' '.join(str(error).split())}"
    reasons = [reason for reason in (getattr(error, "context", None), getattr(error, "problem", None)) if reason]
    return f"{which}line {mark.line + 1}, column {mark.column + 1}: not YAML: {', '.join(reasons)}"


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
