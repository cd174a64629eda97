"""Edits of a document's text at the places of its nodes: all other bytes stay, comments among them.

An entry keeps the comments directly above it, and those within it; comments with a blank line below stay in place. Each
result is read again: what changes anything but what was meant is refused.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

from webhook.core.document.yaml.manifest_scalars import is_text_for_all
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import DocumentError, Path, format_path
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.document.yaml.syntax_errors import LINE_END
from webhook.core.document.yaml.text import decode_text

_BOM = "\ufeff"
_PLAIN = re.compile(r"[A-Za-z0-9_./*][\w./*+ -]*(?<! )", re.ASCII)
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_IN_TEXT = "change it in the text itself"


class EditingError(Exception):
    """The change is not possible at this place; `remedy` says what is."""

    def __init__(self, reason: str, remedy: str = _IN_TEXT) -> None:
        super().__init__(reason)
        self.remedy = remedy


def move_entry(raw: bytes, path: Path, to: int) -> bytes:
    """Return the document with the entry at `path` at another place of its list. EditingError; DocumentError."""
    *above, place = path
    layout = _Layout(raw)
    entries = layout.find_list(tuple(above))
    if not isinstance(place, int) or not (0 <= place < len(entries) and 0 <= to < len(entries)):
        raise EditingError(f"{format_path(path)}: no such place", "open the page again")
    order = list(range(len(entries)))
    order.insert(to, order.pop(place))
    spans = layout.list_spans(tuple(above))
    texts = [layout.text[start:end] for start, end in spans]
    replaced = [(*span, texts[number]) for span, number in zip(spans, order, strict=True)]

    def change(tree: Any) -> None:
        found = _find(tree, tuple(above))
        found.insert(to, found.pop(place))

    return layout.replace(path, replaced, change)


def remove_entry(raw: bytes, path: Path) -> bytes:
    """Return the document without the entry at `path`, and the comments that belong to it."""
    *above, place = path
    layout = _Layout(raw)
    entries = layout.find_list(tuple(above))
    if not isinstance(place, int) or not 0 <= place < len(entries):
        raise EditingError(f"{format_path(path)}: no such place", "open the page again")
    if len(entries) == 1:
        raise EditingError(f"{format_path(path)}: the only entry of its list", "add another one first")
    spot = layout.find_removed(tuple(above), place)

    def change(tree: Any) -> None:
        del _find(tree, tuple(above))[place]

    return layout.replace(path, [spot], change)


def add_entry(raw: bytes, path: Path, value: Mapping[str, Any]) -> bytes:
    """Return the document with a new entry at the end of the list at `path`, which is made if it is absent."""
    layout = _Layout(raw)
    node = _find_node(layout.root, path)
    if node is None or node.value is None:
        return set_field(raw, path, [value])
    entries = layout.find_list(path)
    if not entries:
        return set_field(raw, path, [value])
    spans = layout.list_spans(path)
    if node.is_flow:
        added = (spans[-1][1], spans[-1][1], f", {format_flow(value)}")
    else:
        indent = layout.find_indent(entries[0])
        lines = [f"{key}: {format_flow(field)}" for key, field in value.items()]
        text = "".join(f"{indent}{'  ' if number else '- '}{line}{layout.newline}" for number, line in enumerate(lines))
        added = (spans[-1][1], spans[-1][1], text)
    return layout.replace(path, [added], lambda tree: _find(tree, path).append(deepcopy(value)))


def set_field(raw: bytes, path: Path, value: Any) -> bytes:
    """Return the document with another value of a field, which is added if it is absent."""
    layout = _Layout(raw)
    node = _find_node(layout.root, path)
    *above, key = path
    if node is not None:
        spot = layout.find_value(node, value)
    else:
        parent = _find_node(layout.root, tuple(above))
        if parent is None or not isinstance(parent.value, dict):
            if not above or not isinstance(key, str) or (parent is not None and parent.value is not None):
                raise EditingError(f"{format_path(path)}: there is no place for it")
            return set_field(raw, tuple(above), {key: value})
        spot = layout.find_room(parent, f"{key}: {format_flow(value)}")

    def change(tree: Any) -> None:
        _find(tree, tuple(above))[key] = deepcopy(value)

    return layout.replace(path, [spot], change)


def format_flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_flow(key)}: {format_flow(field)}" for key, field in value.items()) + "}"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and is_text_for_all(value)
        return value if is_plain else _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False))
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(format_flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class _Layout:
    """A document's text with its lines and nodes."""

    def __init__(self, raw: bytes) -> None:
        self._mark = _BOM if raw.startswith(_BOM.encode()) else ""
        text = decode_text(raw)
        found = LINE_END.search(text)
        self.newline = found[0] if found else "\n"
        self._is_ended = not text or bool(LINE_END.fullmatch(text[-1]))
        self.text = text if self._is_ended else text + self.newline
        reading = read_yaml(self.text.encode())
        if reading.problems:
            raise DocumentError(reading.problems)
        self.root = reading.root
        self._starts = [0, *(end.end() for end in LINE_END.finditer(self.text))]
        self._lines = [self.text[start:end] for start, end in pairwise(self._starts)]

    def find_list(self, path: Path) -> list[Node]:
        node = _find_node(self.root, path)
        if node is None or not isinstance(node.value, list):
            raise EditingError(f"{format_path(path)}: no list", "open the page again")
        return node.value

    def list_spans(self, path: Path) -> list[tuple[int, int]]:
        """Return where the text of each entry of a list begins and ends: whole lines, or between commas."""
        node = _find_node(self.root, path)
        if node is None or not isinstance(node.value, list) or _is_alias(node):
            raise EditingError(f"{format_path(path)}: written elsewhere, and used here by an alias")
        if node.is_flow:
            return [
                (self._offset(entry.key_line, entry.key_column), self._offset(entry.end_line, entry.end_column))
                for entry in node.value
            ]
        indents = [self.find_indent(entry) for entry in node.value]
        above = [node.key_line, *(entry.key_line for entry in node.value)]
        firsts = [
            self._find_first_line(entry.key_line, bound + 1, indent)
            for entry, bound, indent in zip(node.value, above, indents, strict=False)
        ]
        stops = [*firsts[1:], self._find_stop(node)]
        return [
            (self._starts[first - 1], self._starts[self._find_last_line(entry.key_line, stop, indent)])
            for first, stop, entry, indent in zip(firsts, stops, node.value, indents, strict=True)
        ]

    def find_removed(self, path: Path, place: int) -> tuple[int, int, str]:
        """Return an entry with what separates it from the next one, or the last one from the one before."""
        spans = self.list_spans(path)
        start, end = spans[place]
        is_last = place == len(spans) - 1
        wide = (spans[place - 1][1], end) if is_last else (start, spans[place + 1][0])
        between = self.text[wide[0] : start] + self.text[end : wide[1]]
        if "#" not in between:
            return *wide, ""
        if between.strip().startswith(","):
            raise EditingError(f"{format_path((*path, place))}: a comment stands between it and its neighbour")
        return start, end, ""

    def find_indent(self, entry: Node) -> str:
        """Return what stands before the dash of a block's entry."""
        before, dash, _ = self._lines[entry.key_line - 1][: entry.key_column - 1].rpartition("-")
        if not dash or before.strip(" "):
            raise EditingError(f"{format_path(entry.path)}: its dash is not the first character of its line")
        return before

    def find_value(self, node: Node, value: Any) -> tuple[int, int, str]:
        """Return where a value stands, and the text in its place."""
        if _is_alias(node):
            raise EditingError(f"{format_path(node.path)}: written elsewhere, and used here by an alias")
        start, end = self._offset(node.line, node.column), self._offset(node.end_line, node.end_column)
        is_block = isinstance(node.value, dict | list) and not node.is_flow
        if is_block or self.text[start : start + 1] in {"|", ">"}:
            raise EditingError(f"{format_path(node.path)}: it has several lines")
        text = format_flow(value)
        return (start, end, text) if end > start else (start, start, f" {text}")

    def find_room(self, parent: Node, text: str) -> tuple[int, int, str]:
        """Return where a mapping has room for another field, and the text there."""
        fields = list(parent.value.values()) if isinstance(parent.value, dict) else []
        if _is_alias(parent):
            raise EditingError(f"{format_path(parent.path)}: written elsewhere, and used here by an alias")
        if parent.is_flow:
            if not fields:
                end = self._offset(parent.end_line, parent.end_column) - 1
                return end, end, text
            last = self._offset(fields[-1].end_line, fields[-1].end_column)
            return last, last, f", {text}"
        # A short mapping grows at its end, a long one behind its first field, where a reader finds it.
        is_short = not any(isinstance(field.value, dict | list) for field in fields)
        chosen = len(fields) - 1 if is_short else 0
        stop = fields[chosen + 1].key_line if chosen + 1 < len(fields) else self._find_stop(parent)
        column = fields[0].key_column
        line = self._find_last_line(fields[chosen].key_line, stop, " " * (column - 1))
        return self._starts[line], self._starts[line], f"{' ' * (column - 1)}{text}{self.newline}"

    def replace(self, path: Path, spots: Sequence[tuple[int, int, str]], change: Callable[[Any], None]) -> bytes:
        """Return the document with other texts at these spots. EditingError: more than `change` would differ."""
        text, at = "", 0
        for start, end, new in spots:
            text, at = text + self.text[at:start] + new, end
        text += self.text[at:]
        if not self._is_ended:
            text = text.removesuffix(self.newline)
        meant: Any = self.root.strip_positions()
        meant = deepcopy(meant)
        change(meant)
        raw = (self._mark + text).encode()
        try:
            found = read_yaml(raw)
        except DocumentError as error:
            raise EditingError(f"{format_path(path)}: after the change the document cannot be read: {error}") from None
        if found.problems or found.root.strip_positions() != meant:
            raise EditingError(f"{format_path(path)}: more than this would change, such as an alias of it elsewhere")
        return raw

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column - 1 if line <= len(self._starts) else len(self.text)

    def _find_stop(self, block: Node) -> int:
        """Return the line in which the part after a block begins."""
        return min(block.end_line, len(self._lines) + 1)

    def _find_first_line(self, line: int, bound: int, indent: str) -> int:
        """Return the first of the comment lines directly above a line, which have its indentation."""
        while line > bound and self._lines[line - 2].startswith(f"{indent}#"):
            line -= 1
        return line

    def _find_last_line(self, line: int, stop: int, indent: str) -> int:
        """Return the last line before `stop` that is no blank line, and no comment of the parts around a block."""
        last = stop - 1
        while last > line:
            text = self._lines[last - 1]
            body = text.lstrip(" ")
            is_comment = body.startswith("#") and len(text) - len(body) <= len(indent)
            if body.strip() and not is_comment:
                break
            last -= 1
        return max(last, line)


def _is_alias(node: Node) -> bool:
    return (node.line, node.column) < (node.key_line, node.key_column)


def _find_node(root: Node, path: Path) -> Node | None:
    node = root
    for step in path:
        try:
            node = node.child(step)
        except (KeyError, IndexError):
            return None
    return node


def _find(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree[step]
    return tree
