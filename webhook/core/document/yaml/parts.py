"""Document parts: access of rules to a document that may have invalid fields.

Reading a field that the schema rejected ends the rule silently. So a rule reports problems only if all fields that it
reads are valid, and all rules can run in one pass.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, cast

import msgspec

from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import Path, Problem
from webhook.core.kubernetes.quantity import convert_amount

T = TypeVar("T")


class InvalidFieldError(Exception):
    """A rule read a field that is already known to be invalid."""


class InvalidPaths:
    """Paths of the fields that are known to be invalid."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = set(paths)
        self._above = {path[:length] for path in self._paths for length in range(len(path) + 1)}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def is_at(self, path: Path) -> bool:
        return path in self._paths

    def is_within(self, path: Path) -> bool:
        return path in self._above


class DocumentPart:
    """A valid part of the document: a node and the nodes below it."""

    __slots__ = ("_below", "_wrong", "node", "path")

    def __init__(self, node: Node, path: Path, wrong: InvalidPaths) -> None:
        self.node = node
        self.path = path
        self._wrong = wrong
        self._below: dict[str | int, DocumentPart] | None = None

    @property
    def is_empty(self) -> bool:
        return self.node.value in ({}, [])

    def get(self, *keys: str) -> "DocumentPart | None":
        """Return a nested field, None if it is absent."""
        part: DocumentPart | None = self
        for key in keys:
            if part is None:
                return None
            part = part.get_field(key)
        return part

    def get_field(self, key: str) -> "DocumentPart | None":
        """Return one field, None if it is absent."""
        part = self._parts().get(key)
        if part is None and self._wrong.is_at((*self.path, key)):
            raise InvalidFieldError
        return part

    def narrow(self, key: str) -> "DocumentPart":
        """Return this mapping with one field only."""
        alone = DocumentPart(self.node, self.path, self._wrong)
        alone._below = {key: self._parts()[key]}
        return alone

    def fields(self) -> Mapping[str, "DocumentPart"]:
        """Return the valid fields of a mapping."""
        return cast("dict[str, DocumentPart]", self._parts()) if isinstance(self.node.value, dict) else {}

    def items(self) -> list["DocumentPart"]:
        """Return the valid items of a list."""
        return list(self._parts().values()) if isinstance(self.node.value, list) else []

    def select(self, *keys: str) -> list["DocumentPart"]:
        """Return every valid part at a path; `*` matches each item of a list."""
        part = self
        for place, key in enumerate(keys):
            if key == "*":
                return self.select_in([part], *keys[place:])
            found = (part._below or part._parts()).get(key)
            if found is None:  # most rules are about fields that most services do not have
                return []
            part = found
        return [part]

    @staticmethod
    def select_in(parts: "list[DocumentPart]", *keys: str) -> "list[DocumentPart]":
        """Return every valid part at a path within some parts."""
        for key in keys:
            if key == "*":
                parts = [item for part in parts for item in part.items()]
            else:
                parts = [field for part in parts if (field := part._parts().get(key)) is not None]  # noqa: SLF001  own
        return parts

    def _parts(self) -> dict[str | int, "DocumentPart"]:
        """Return the valid parts directly below, by key or index. They are kept, as many rules read them."""
        if self._below is None:
            value = self.node.value
            steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            path, wrong = self.path, self._wrong
            parts = {step: DocumentPart(node, (*path, step), wrong) for step, node in steps}
            self._below = {step: part for step, part in parts.items() if not wrong.is_at(part.path)} if wrong else parts
        return self._below

    def read(self, kind: type[T]) -> T:
        """Return this part as `kind`."""
        if self._wrong.is_within(self.path):
            raise InvalidFieldError
        return convert(self.node, kind)

    def report(self, reason: str, remedy: str) -> Problem:
        """Return a problem about the value."""
        return self.node.build_problem(reason, remedy)

    def report_within(self, line: int, column: int, reason: str, remedy: str) -> Problem | None:
        """Return a problem at a place in the text, which counts from 1; None if its position is not known."""
        return self.node.build_problem_within(line, column, reason, remedy)

    def report_field(self, reason: str, remedy: str) -> Problem:
        """Return a problem about the whole field."""
        return self.node.build_key_problem(reason, remedy)

    def report_missing(self, key: str, reason: str, remedy: str) -> Problem:
        """Return a problem about a missing field."""
        return self.node.build_missing_problem(key, reason, remedy)


def convert(node: Node, kind: type[T]) -> T:
    """Convert a node to `kind`. The schema must have accepted the node."""
    return msgspec.convert(node.strip_positions(), kind, dec_hook=convert_amount)


def stop_at_invalid(problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield a rule's problems until it reads an invalid field."""
    try:
        yield from problems
    except InvalidFieldError:
        return
