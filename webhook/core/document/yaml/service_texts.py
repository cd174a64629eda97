"""Text of a document in pieces: what is before its services, each service, and what is after them.

A document is cut by its indentation alone, and only if it is written in the usual way. Whoever has parsed it asks
`is_cut_at_services` whether the pieces are the services that the parser found. A piece that was a service in one
document is the same service in each other one with the same head: YAML closes whatever a piece has opened where the
next one begins.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from webhook.core.document.yaml.nodes import Node

_KEY = re.compile(r"^services:[ \t]*(?:#.*)?\r?\n", re.MULTILINE)
_FIRST = re.compile(r"(?:[ \t]*(?:#.*)?\r?\n)*( *)- +[^\s#]")
_ANCHOR = re.compile(r"(?:^|[\s\[{,:?-])&\S", re.MULTILINE)
"""An anchor of one piece may be read in another one."""


class ServiceTexts(NamedTuple):
    """The pieces of a document, which joined are its text."""

    head: str
    services: tuple[str, ...]
    tail: str

    def select(self, places: Sequence[int]) -> "ServiceTexts":
        """Return the document with some of its services."""
        return self._replace(services=tuple(self.services[place] for place in places))

    def join(self) -> str:
        return "".join((self.head, *self.services, self.tail))

    def is_cut_at_services(self, root: Node) -> bool:
        """Return whether the pieces are the services of a tree, which a parser has read in the joined text."""
        found = root.value.get("services") if isinstance(root.value, dict) else None
        if found is None or not isinstance(found.value, list) or len(found.value) != len(self.services):
            return False
        line = self.head.count("\n") + 1
        for item, text in zip(found.value, self.services, strict=True):
            if item.line != line or not isinstance(item.value, dict):
                return False
            line += text.count("\n")
        return True


def cut_services(text: str) -> ServiceTexts | None:
    """Cut a document; None if it is not written in the usual way: a block with one service after the other."""
    keys = list(_KEY.finditer(text))
    if len(keys) != 1 or not text.endswith("\n"):
        return None
    first = _FIRST.match(text, keys[0].end())
    if first is None:
        return None
    indent = len(first[1])
    begin = first.start(1)
    end_at = re.compile(rf"^(?! {{{indent}}}- ) {{0,{indent}}}[^\s#]", re.MULTILINE).search(text, begin)
    end = len(text) if end_at is None else end_at.start()
    starts = [found.start() for found in re.compile(rf"^ {{{indent}}}- ", re.MULTILINE).finditer(text, begin, end)]
    if _ANCHOR.search(text, begin, end):
        return None
    pieces = tuple(text[start:stop] for start, stop in zip(starts, [*starts[1:], end], strict=True))
    return ServiceTexts(text[:begin], pieces, text[end:])
