"""A collection of objects that can be listed and watched, and its list request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Raw

from webhook.adapters.kubernetes.api.objects import AnObject, Listed
from webhook.adapters.kubernetes.api.requests import JSON, METADATA, METADATA_LIST, GarbledError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Collection(Generic[AnObject]):
    """Objects of one kind: all of them, or one by name."""

    item: type[AnObject]
    items: type[Listed[AnObject]]
    path: str
    name: str
    """Name in messages."""
    right: str
    """RBAC permission required, as worded in messages."""
    object_name: str = ""
    """Name of the only object to select; works with a role restricted by resourceNames."""
    fields: str = ""
    """Field selector; ignored if `object_name` is set."""
    labels: str = ""
    """Label selector."""
    is_metadata: bool = False
    """Whether only the metadata of the objects are read."""

    @property
    def list_accept(self) -> str:
        return METADATA_LIST if self.is_metadata else JSON

    @property
    def watch_accept(self) -> str:
        return METADATA if self.is_metadata else JSON

    def build_query(self, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        selector = f"metadata.name={self.object_name}" if self.object_name else self.fields
        selectors = (("fieldSelector", selector), ("labelSelector", self.labels))
        return (*(entry for entry in selectors if entry[1]), *more)


@dataclass(frozen=True, slots=True)
class ListSnapshot(Generic[AnObject]):
    """All objects as of `version`; those of `unread` exist, and cannot be decoded."""

    items: Sequence[AnObject]
    version: str
    unread: Sequence[UnreadObject] = ()


def decode_object(text: bytes | Raw, kind: type[_T]) -> _T:
    """Decode a single object, as lists are decoded. GarbledError: it is of another shape."""
    try:
        return decode_foreign(text, kind)
    except UNREADABLE_JSON as error:
        raise GarbledError(f"not understood: {error}") from error
