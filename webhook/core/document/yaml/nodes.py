"""Nodes: the document as a tree with line, column and path of every value, and unquoted scalars resolved."""

import re
from dataclasses import dataclass
from typing import Self

from webhook.core.document.yaml.problems import Path, Problem, format_path, format_value, quote

DOCUMENT_NODES_MAX = 250_000
"""Limit after expansion of aliases and `defaults`, so that checks take bounded time."""


class ExactNumber(float):
    """A number other than a plain integer, with its text: amounts are parsed exactly from the text."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text


Scalar = str | int | ExactNumber | bool | None
Value = dict[str, "Node"] | list["Node"] | Scalar


@dataclass(slots=True, eq=False)
class Node:
    """A value and its position. Values from aliases or `defaults` keep their original position."""

    value: Value
    path: Path
    line: int
    column: int
    key_line: int
    key_column: int
    text: str = ""
    quoted: bool = False
    size: int = 1
    text_line: int = 0
    text_column: int = 0
    """Where each line of the text begins; 0 where the document has it folded or escaped."""
    end_line: int = 0
    end_column: int = 0
    """Behind its last character; of a block, where the next part begins; of an alias, behind the alias itself."""
    is_flow: bool = False
    """Whether a mapping or a list is written in brackets."""

    @property
    def shown(self) -> str:
        """The value as a problem quotes it."""
        if isinstance(self.value, dict):
            return "{...}" if self.value else "{}"
        if isinstance(self.value, list):
            return "[...]" if self.value else "[]"
        if self.quoted:
            return quote(self.text)
        return "(empty)" if self.value is None and not self.text else format_value(self.text)

    def strip_positions(self) -> object:
        """Return the value without positions."""
        if isinstance(self.value, dict):
            return {key: node.strip_positions() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.strip_positions() for node in self.value]
        return self.value

    def child(self, step: str | int) -> "Node":
        """Return the node at a key or an index."""
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value[step]
        if isinstance(self.value, list) and isinstance(step, int):
            return self.value[step]
        raise KeyError(step)

    def build_problem(self, reason: str, remedy: str) -> Problem:
        """Return a problem at the position of this value."""
        line, column = (self.key_line, self.key_column) if self.value is None else (self.line, self.column)
        return Problem(line, column, format_path(self.path), self.shown, reason, remedy)

    def build_problem_within(self, line: int, column: int, reason: str, remedy: str) -> Problem | None:
        """Return a problem at a place in this text, which counts from 1; None if its position is not known."""
        if not self.text_column:
            return None
        place = self.text_line + line - 1, self.text_column + column - 1
        return Problem(*place, format_path(self.path), self.shown, reason, remedy)

    def build_key_problem(self, reason: str, remedy: str) -> Problem:
        """Return a problem at the position of this field's key."""
        return Problem(self.key_line, self.key_column, format_path(self.path), self.shown, reason, remedy)

    def build_missing_problem(self, key: str | int, reason: str, remedy: str, value: str = "(absent)") -> Problem:
        """Return a problem about a missing field, at the position of this object."""
        return Problem(self.key_line, self.key_column, format_path((*self.path, key)), value, reason, remedy)


_TRUE = frozenset({"yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"})
_FALSE = frozenset({"no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})", re.ASCII)  # 18 digits: fits 64 bits
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_AMBIGUOUS = re.compile(r"[+-]?0\d[\d.]*", re.ASCII)  # 010 is 8 to one parser and 10 to another


def resolve_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar. Dates and numbers such as 010 stay text."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not _AMBIGUOUS.fullmatch(text):
        return ExactNumber(text)
    return text
