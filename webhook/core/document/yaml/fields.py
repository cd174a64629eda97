"""How rules look at a document that may be half wrong: reading a field that the schema refused ends the rule, silently.

So a rule over several fields is judged only where those fields are right, and every rule can be judged in one run.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import Path, Problem
from webhook.core.kubernetes.quantity import Duration, Quantity

T = TypeVar("T")


class WrongError(Exception):
    """A rule reached for a field that is wrong already."""


class Wrong:
    """The fields that are wrong already."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = set(paths)
        self._above = {path[:length] for path in self._paths for length in range(len(path) + 1)}

    def is_at(self, path: Path) -> bool:
        return path in self._paths

    def is_within(self, path: Path) -> bool:
        return path in self._above


class Part:
    """One sound place of the document and what is below it."""

    __slots__ = ("_wrong", "node", "path")

    def __init__(self, node: Node, path: Path, wrong: Wrong) -> None:
        self.node = node
        self.path = path
        self._wrong = wrong

    @property
    def is_empty(self) -> bool:
        return self.node.value in ({}, [])

    def get(self, *keys: str) -> "Part | None":
        """Return the field below, None where it is absent."""
        part: Part | None = self
        for key in keys:
            if part is None:
                return None
            part = part.field(key)
        return part

    def field(self, key: str) -> "Part | None":
        """Return one field, None where it is absent."""
        path = (*self.path, key)
        if self._wrong.is_at(path):
            raise WrongError
        node = self.node.value.get(key) if isinstance(self.node.value, dict) else None
        return None if node is None else Part(node, path, self._wrong)

    def fields(self) -> dict[str, "Part"]:
        """Return the sound fields of a mapping."""
        if not isinstance(self.node.value, dict):
            return {}
        parts = {key: Part(node, (*self.path, key), self._wrong) for key, node in self.node.value.items()}
        return {key: part for key, part in parts.items() if not self._wrong.is_at(part.path)}

    def items(self) -> list["Part"]:
        """Return the sound items of a list."""
        if not isinstance(self.node.value, list):
            return []
        parts = [Part(node, (*self.path, index), self._wrong) for index, node in enumerate(self.node.value)]
        return [part for part in parts if not self._wrong.is_at(part.path)]

    def select(self, *keys: str) -> Iterator["Part"]:
        """Yield every sound place below; `*` stands for each item of a list."""
        if not keys:
            yield self
        elif keys[0] == "*":
            for item in self.items():
                yield from item.select(*keys[1:])
        elif (field := self.fields().get(keys[0])) is not None:
            yield from field.select(*keys[1:])

    def read(self, kind: type[T]) -> T:
        """Return the whole of this part as `kind`."""
        if self._wrong.is_within(self.path):
            raise WrongError
        return converted(self.node, kind)

    def wrong(self, reason: str, remedy: str) -> Problem:
        """Object to the value."""
        return self.node.problem(reason, remedy)

    def wrong_field(self, reason: str, remedy: str) -> Problem:
        """Object to the field as a whole."""
        return self.node.problem_at_key(reason, remedy)

    def lacks(self, key: str, reason: str, remedy: str) -> Problem:
        """Object to what is not there."""
        return self.node.problem_inside(key, reason, remedy)


def converted(node: Node, kind: type[T]) -> T:
    """Return a node as one of our types. Only for what the schema let pass."""
    return msgspec.convert(node.plain(), kind, dec_hook=_parsed)


def _parsed(kind: type, value: Any) -> Any:
    if kind is Duration or kind is Quantity:
        return kind.parse(str(value))
    raise NotImplementedError(kind)


def sound(problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield what a rule finds until it reaches for something wrong."""
    try:
        yield from problems
    except WrongError:
        return
