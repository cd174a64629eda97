"""Types with which a Pod is decoded for rules: only the fields that they read, each with a limit on its length."""

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from webhook.core.pod_rules.conversion import AMOUNT_FIELDS, INT_MAX, NAMES_OF_OBJECTS
from webhook.core.pod_rules.fields import ENTRIES_MAX, MESSAGES, TEXT_CHARACTERS_MAX, Field

SIZE = Meta(max_length=ENTRIES_MAX)
_Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
_Int = Annotated[int, Meta(ge=-INT_MAX - 1, le=INT_MAX)]
_SCALARS: Mapping[str, Any] = {"string": _Text, "int": _Int, "bool": bool}
_ANNOTATED: Any = Annotated
"""For types that are made here."""
_Amounts = Annotated[dict[_Text, str | int | float | None], SIZE]


class ViewTypes:
    """Makes types for the messages of `fields.MESSAGES`."""

    def __init__(self, reads: frozenset[Field]) -> None:
        self._reads = reads
        self._messages: dict[str, Any] = {}

    def define(self, name: str, types: Mapping[str, Any]) -> Any:
        """Return a struct of optional fields; absent ones are left out of its builtins."""
        fields = [(f"_{field}", kind | None, None) for field, kind in types.items()]
        return msgspec.defstruct(
            name, fields, frozen=True, gc=False, omit_defaults=True, rename=lambda field: field.removeprefix("_")
        )

    def make_source_type(self, field: str) -> Any:
        """Return the type of a field of the Pod as Kubernetes has it."""
        source = find_source(field)
        if source == "resources":
            return self.define("Resources", dict.fromkeys(AMOUNT_FIELDS, _Amounts))
        if source == "annotations":
            return dict[str, str]
        if source == "volumes":
            return Annotated[list[dict[str, Any]], SIZE]
        if source in NAMES_OF_OBJECTS:
            return self._make_type("[NameReference]")
        return self._make_type(str(MESSAGES["Pod"][field]))

    def _make_type(self, kind: str) -> Any:
        if kind.startswith("["):
            entry = self._make_type(kind.strip("[]"))
            return _ANNOTATED[GenericAlias(list, entry), SIZE]
        if kind.startswith("{"):
            value = self._make_type(kind.strip("{}"))
            return _ANNOTATED[GenericAlias(dict, (_Text, value)), SIZE]
        plain = kind.rstrip("?")
        if plain in _SCALARS:
            return _SCALARS[plain]
        if plain not in self._messages:
            self._messages[plain] = self.define(plain, self.list_types(plain))
        return self._messages[plain]

    def list_types(self, message: str) -> dict[str, Any]:
        """Return the types of a message's fields, for a container only those that are read."""
        fields = {
            field: str(kind)
            for field, kind in MESSAGES[message].items()
            if message != "Container" or (message, field) in self._reads
        }
        types = {field: self._make_type(kind) for field, kind in fields.items() if kind != "Amounts"}
        if len(types) < len(fields):
            types["resources"] = self.make_source_type("requests")
        return types


def find_source(field: str) -> str:
    """Return the field of Kubernetes' object that a field is made of."""
    return "resources" if field in AMOUNT_FIELDS else field
