"""YAML text of objects and streams, and its layout: the lines of each value, by JSON Pointer.

Mappings and lists are laid out here, in one walk; only single keys and scalars are formatted by PyYAML: its emitter
is slow for large Pods, and does not report line numbers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import yaml

from webhook.core.document.yaml.manifest_scalars import is_text_for_all
from webhook.core.patch import format_pointer
from webhook.core.plain_text import escape_yaml


class _StreamDumper(yaml.SafeDumper):
    """YAML for readers: expressions as blocks, without doubled quotes, and no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "'" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style if is_text_for_all(data) else "'")


_StreamDumper.add_representer(str, _StreamDumper.represent_str)


def format_yaml_stream(documents: tuple[dict[str, Any], ...]) -> str:
    """Return the documents as a YAML stream; no line is folded."""
    return yaml.dump_all(documents, Dumper=_StreamDumper, sort_keys=False, explicit_start=True, width=float("inf"))


class _Dumper(yaml.SafeDumper):
    """YAML for readers: no anchors, no folded lines, multi-line strings as blocks."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.rstrip("\n") else None
    if not is_text_for_all(text):
        style = "'"
    if not text.replace("\n", "").isprintable():
        style = '"'  # the only one with escapes
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_string)
_WIDTH_MAX = 1 << 20
_CACHED_CHARACTERS_MAX = 1 << 12  # characters
_KEY_CHARACTERS_MAX = 64  # beyond, PyYAML decides whether the short form is possible
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # of YAML 1.1 and 1.2
_AFTER = "\nz: 0\n"  # a following field: the end of a document is formatted differently

Span = tuple[int, int]
"""First line, and the line after the last."""


def format_yaml(document: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return an object, or a list, as YAML."""
    return "\n".join([*YamlLayout(document).lines, ""])


def format_flow(document: dict[str, Any]) -> str:
    """Return a small object on one line."""
    return _dump(document, is_flow=True).strip()


class YamlLayout:
    """The YAML lines of an object, and the span of lines of each value by its JSON Pointer."""

    def __init__(self, document: Mapping[str, Any] | Sequence[Any]) -> None:
        self.lines: list[str] = []
        self.spans: dict[str, Span] = {}
        self._write(document, "", "", 0)

    def _write(self, value: Any, at: str, head: str, indent: int) -> None:
        """Write a value after `head`, its further lines at `indent`."""
        start = len(self.lines)
        if value and isinstance(value, dict):
            self._write_mapping(value, at, head, indent)
        elif value and isinstance(value, list | tuple):
            for index, item in enumerate(value):
                self._write(item, at + format_pointer(index), f"{head}- ", indent + 2)
                head = " " * indent
        else:
            self._write_text(head, _format_scalar(value), indent)
        self.spans[at] = (start, len(self.lines))

    def _write_mapping(self, value: dict[str, Any], at: str, head: str, indent: int) -> None:
        for key, inner in value.items():
            start, place = len(self.lines), at + format_pointer(key)
            text = _format_key(key)
            if text is None:  # too long, or of several lines, for the short form
                self._write_text(f"{head}? ", _format_scalar(key), indent + 2)
                self._write(inner, place, " " * indent + ": ", indent + 2)
            elif not inner or not isinstance(inner, dict | list | tuple):
                self._write(inner, place, f"{head}{text}: ", indent + 2)
            else:
                self.lines.append(f"{head}{text}:")
                deeper = indent + 2 * isinstance(inner, dict)
                self._write(inner, place, " " * deeper, deeper)
            self.spans[place] = (start, len(self.lines))
            head = " " * indent

    def _write_text(self, head: str, text: str, indent: int) -> None:
        first, *more = text.split("\n")
        self.lines.append(head + first)
        self.lines += [" " * indent + line if line else line for line in more]


def _format_scalar(value: Any) -> str:
    """Return a scalar, or an empty mapping or list; lines beyond the first without their indentation."""
    if isinstance(value, str):
        if _is_plain(value):
            return value
        return _format_cached(value) if len(value) <= _CACHED_CHARACTERS_MAX else _lay_out(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _lay_out(value)


def _is_plain(text: str) -> bool:
    """Return whether a string needs no quoting: most names, images and paths."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS


@lru_cache(maxsize=8192)
def _format_cached(value: str) -> str:
    return _lay_out(value)


def _lay_out(value: Any) -> str:
    return "\n".join(_format_value_lines(value))


def _format_value_lines(value: Any) -> Iterator[str]:
    first, *more = _dump({"k": value, "z": 0}).removesuffix(_AFTER).split("\n")
    yield first.removeprefix("k: ")
    for line in more:
        yield line.removeprefix("  ")


@lru_cache(maxsize=8192)
def _format_key(key: str) -> str | None:
    """Return a key as written before a colon, None if it needs the long form."""
    if _is_plain(key) and len(key) < _KEY_CHARACTERS_MAX:
        return key
    text = _dump({key: 0})
    return None if text.startswith("? ") else text.removesuffix(": 0\n")


def _dump(document: Any, *, is_flow: bool = False) -> str:
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=is_flow, allow_unicode=True, width=_WIDTH_MAX
    )
    return escape_yaml(text)
