"""Kubernetes API types, reduced to the fields that Podgate reads. Lax on purpose: Go writes null for empty."""

from typing import Generic, Protocol, TypeVar

from msgspec import Raw, Struct, field


def parse_version(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not one and cannot be compared."""
    return int(version) if version.isascii() and version.isdigit() else 0


LABELS = {"app.kubernetes.io/name": "podgate", "app.kubernetes.io/managed-by": "podgate"}
"""Labels of every object that Podgate writes."""


class Named(Protocol):
    """Metadata fields read from any object."""

    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Protocol):
    """An object that can be listed and watched."""

    @property
    def metadata(self) -> Named: ...


class ObjectVersion(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Namespace(Struct, frozen=True):
    metadata: ObjectVersion


AnObject = TypeVar("AnObject", bound=Object)


class ListMetadata(Struct, frozen=True):
    """`next` is the continue token, "" on the last page."""

    resource_version: str = field(default="", name="resourceVersion")
    next: str = field(default="", name="continue")


class Listed(Struct, Generic[AnObject], frozen=True):
    metadata: ListMetadata
    items: list[AnObject] | None = None


class WatchEvent(Struct, frozen=True):
    """One line of a watch response. `type` determines how `object` is decoded."""

    type: str
    object: Raw


class Bookmark(Struct, frozen=True):
    """Object of a BOOKMARK event: the version that the watch has reached."""

    metadata: ObjectVersion


class ApiStatus(Struct, frozen=True):
    """Object of an ERROR event, and body of an error response."""

    code: int = 0
    reason: str = ""
    message: str = ""
