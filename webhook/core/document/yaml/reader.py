"""YAML reader: bytes to a tree of nodes. Rejects what YAML parsers interpret differently.

It composes nodes from PyYAML's events itself, because depth, size and aliases must be bounded while reading, and
because a plain `no` must keep its text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import yaml

from webhook.core.document.yaml.nodes import DOCUMENT_NODES_MAX, Node, resolve_scalar
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Path, Problem, format_value
from webhook.core.document.yaml.syntax_errors import describe_syntax_error
from webhook.core.document.yaml.text import (
    build_syntax_problem,
    decode_text,
    replace_surrogate_pairs,
    restore_surrogate_pairs,
)

DOCUMENT_DEPTH_MAX = 64  # levels; the deepest stanza needs 16

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's loader is much faster, with the same marks
_STRING = "tag:yaml.org,2002:str"
_STRING_TAGS = frozenset({"!", _STRING})


@dataclass(slots=True)
class ParsedYaml:
    """The tree, and the problems that did not stop parsing."""

    root: Node
    problems: list[Problem] = field(default_factory=list)
    is_empty: bool = False
    """There is no document; the root is a null."""


def read_yaml(raw: bytes) -> ParsedYaml:
    """Read one document. DocumentError: it cannot be parsed."""
    text = decode_text(raw)
    composer = _Composer(text)
    try:
        reading = composer.compose_document()
    except yaml.YAMLError as error:
        raise DocumentError(
            [*composer.problems, build_syntax_problem(describe_syntax_error(error, text), text)]
        ) from None
    return reading


_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # as the marks of YAML 1.1 count lines
_QUOTES = frozenset({"'", '"'})


def _set_end(node: Node, event: Any) -> None:
    node.end_line, node.end_column = event.end_mark.line + 1, event.end_mark.column + 1


class _Composer:
    """Composes nodes from the events of one text."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        json = replace_surrogate_pairs(text)
        self._has_surrogates = json is not None
        self._text = json or text
        self._next_event: Callable[[], Any] = _LOADER(self._text).get_event
        self._anchors: dict[str, Node | None] = {}  # None while the anchor's own node is still being read
        self._nodes = 0
        self._keys: set[str] = set()
        """Texts of plain keys that were found good: most keys are those of the stanzas before."""

    def compose_document(self) -> ParsedYaml:
        self._next_event()  # the stream's start
        if isinstance(self._next_event(), yaml.StreamEndEvent):
            return ParsedYaml(Node(None, (), 1, 1, 1, 1), is_empty=True)
        root = self._compose_node(self._next_event(), (), None)
        self._next_event()  # the document's end
        after = self._next_event()
        if not isinstance(after, yaml.StreamEndEvent):
            mark = after.start_mark
            reason, remedy = "a second YAML document", "keep all of it in one document"
            self.problems.append(Problem(mark.line + 1, mark.column + 1, DOCUMENT, "---", reason, remedy))
        return ParsedYaml(root, self.problems)

    def _compose_node(self, event: Any, path: Path, key: Any) -> Node:
        start = event.start_mark
        key = key or start
        node = Node(None, path, start.line + 1, start.column + 1, key.line + 1, key.column + 1)
        anchor = event.anchor
        is_scalar = isinstance(event, yaml.ScalarEvent)  # as most are
        if not is_scalar and isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event, node)
        if anchor is not None:
            self._anchors[anchor] = None
        if is_scalar:
            self._compose_scalar(event, node)
        elif len(path) >= DOCUMENT_DEPTH_MAX:
            raise DocumentError(
                [*self.problems, node.build_problem(f"nested deeper than {DOCUMENT_DEPTH_MAX} levels", "flatten it")]
            )
        elif isinstance(event, yaml.SequenceStartEvent):
            self._compose_sequence(event, node)
        else:
            self._compose_mapping(event, node)
        if anchor is not None:
            self._anchors[anchor] = node
        self._count(node, 1)
        return node

    def _count(self, node: Node, more: int) -> None:
        self._nodes += more
        if self._nodes > DOCUMENT_NODES_MAX:
            reason = f"more than {DOCUMENT_NODES_MAX} values, aliases expanded"
            raise DocumentError(
                [*self.problems, node.build_problem(reason, "use fewer aliases, or split the document")]
            )

    def _resolve_alias(self, event: Any, here: Node) -> Node:
        here.value = here.text = f"*{event.anchor}"
        if event.anchor not in self._anchors:
            problem = here.build_problem("the anchor is not defined above", "define the anchor above its first use")
            raise DocumentError([*self.problems, problem])
        there = self._anchors[event.anchor]
        if there is None:
            problem = here.build_problem("the alias is inside the value that it refers to", "write the value out")
            raise DocumentError([*self.problems, problem])
        self._count(here, there.size)
        _set_end(here, event)
        # The key has the alias's position; the value keeps its original position.
        return replace(
            there,
            path=here.path,
            key_line=here.key_line,
            key_column=here.key_column,
            end_line=here.end_line,
            end_column=here.end_column,
        )

    def _compose_sequence(self, event: Any, node: Node) -> None:
        self._check_tag(event, node, "tag:yaml.org,2002:seq")
        items: list[Node] = []
        while not isinstance(inner := self._next_event(), yaml.SequenceEndEvent):
            items.append(self._compose_node(inner, (*node.path, len(items)), None))
        node.value, node.is_flow = items, event.flow_style
        _set_end(node, inner)
        node.size += sum(item.size for item in items)

    def _compose_mapping(self, event: Any, node: Node) -> None:
        self._check_tag(event, node, "tag:yaml.org,2002:map")
        fields: dict[str, Node] = {}
        while not isinstance(inner := self._next_event(), yaml.MappingEndEvent):
            key = self._compose_key(inner, node)
            value = self._compose_node(self._next_event(), (*node.path, key or "?"), inner.start_mark)
            if key is None:
                continue
            if key in fields:
                reason = f"written twice, first in line {fields[key].key_line}"
                self.problems.append(value.build_key_problem(reason, "keep one of the two"))
            else:
                fields[key] = value
        node.value, node.is_flow = fields, event.flow_style
        _set_end(node, inner)
        node.size += sum(value.size for value in fields.values())

    def _compose_key(self, event: Any, parent: Node) -> str | None:
        """Return the text of a key; None, with a problem, if it cannot be a key of a policy."""
        is_plain = isinstance(event, yaml.ScalarEvent) and event.anchor is event.tag is None and not event.style
        if is_plain and event.value in self._keys:
            self._nodes += 1
            return str(event.value)
        here = self._compose_node(event, (*parent.path, "?"), None)
        here.path = parent.path
        if isinstance(here.value, dict | list) or isinstance(event, yaml.AliasEvent):
            self.problems.append(here.build_problem("a key must be plain text", "write a name, a colon and the value"))
        elif here.value is None:
            self.problems.append(here.build_problem("a key is missing before the colon", "write the field's name"))
        elif isinstance(here.value, bool):
            reason = f"{here.text} without quotes is a YAML boolean, and a key must be text"
            self.problems.append(here.build_problem(reason, f'quote it: "{here.text}"'))
        elif here.text == "<<" and not here.quoted:
            remedy = "use `defaults` for what services share, or an alias for a whole value"
            self.problems.append(here.build_problem("merge keys are not supported", remedy))
        else:
            if is_plain and here.text == event.value:
                self._keys.add(here.text)
            return here.text
        return None

    def _compose_scalar(self, event: Any, node: Node) -> None:
        node.text = restore_surrogate_pairs(event.value) if self._has_surrogates else event.value
        node.quoted = bool(event.style)
        _set_end(node, event)
        if event.tag in _STRING_TAGS or node.quoted:
            self._check_tag(event, node, "tag:yaml.org,2002:str")
            node.value, node.quoted = node.text, True
            self._find_text(event, node)
            return
        self._check_tag(event, node, "")
        node.value = resolve_scalar(node.text)
        self._find_text(event, node)

    def _find_text(self, event: Any, node: Node) -> None:
        """Find where the text begins in the document, if it stands there as it is."""
        start, end = event.start_mark, event.end_mark
        quotes = 1 if event.style in _QUOTES else 0
        if event.style == "|":
            self._find_literal(start.line + 1, node)
        elif start.line == end.line and end.column - start.column == len(node.text) + 2 * quotes:
            node.text_line, node.text_column = start.line + 1, start.column + quotes + 1

    def _find_literal(self, first: int, node: Node) -> None:
        """Find where the text of a literal block begins; its lines follow line `first`, and share an indentation."""
        for number, line in enumerate(_LINE_BREAK.split(node.text)):
            if line.strip():
                node.text_line, node.text_column = first + 1, self._lines[first + number].find(line) + 1
                return

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_BREAK.split(self._text)

    def _check_tag(self, event: Any, node: Node, allowed: str) -> None:
        if event.tag is not None and event.tag != allowed and event.tag not in _STRING_TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.problems.append(
                node.build_problem(f"the tag {format_value(tag)} has no meaning here", "remove the tag")
            )
