"""YAML as nobody can misread it: flat, without aliases, and a key that stands twice is an error."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from webhook.core.document.yaml.document_kind import DocumentKind
from webhook.errors import UserError

_DEEPEST = 16
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times faster
_FAULTS = (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError)
"""What PyYAML raises for a scalar that is not of its tag is a matter of the tag."""


class _UniqueKeysLoader(_SAFE):  # type: ignore[misc]  # which of the two it is, the machine decides
    """A second key of the same name would silently win: it is an error here."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  PyYAML's
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(str(key.value))
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


def read_yaml(content: bytes, name: str) -> Any:
    """Return the document; UserError where it is none. `name` is what people know it by."""
    try:
        text = content.decode()
        _check_shape(text)
        return yaml.load(text, Loader=_UniqueKeysLoader)  # noqa: S506 - a SafeLoader, stricter still
    except UnicodeDecodeError:
        raise UserError(f"{name}: not UTF-8", "write it in UTF-8") from None
    except _FAULTS as error:
        raise UserError(f"{name}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None


@contextmanager
def shown_only_as(kind: DocumentKind, content: bytes, name: str) -> Iterator[None]:
    """Let a UserError about a document pass, but not one about a text of another kind, which it may show."""
    try:
        yield
    except UserError:
        if kind.is_met_by(content):
            raise
        raise UserError(f"{name}: {kind.unlike}", kind.remedy) from None


def _check_shape(text: str) -> None:
    """Look at the events first: libyaml's loader crashes on deep nesting, and aliases expand without bounds."""
    depth = 0
    for event in yaml.parse(text, Loader=_SAFE):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted: write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"nested deeper than {_DEEPEST} levels")
