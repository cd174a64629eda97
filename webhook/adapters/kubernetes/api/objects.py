"""Kubernetes' own types as they travel, as far as they are read here. Lax on purpose: Go writes null for empty."""

from typing import Generic, Protocol, TypeVar

from msgspec import Raw, Struct, field

LABELS = {"app.kubernetes.io/name": "podgate", "app.kubernetes.io/managed-by": "podgate"}
"""Of every object that this program writes."""


class Named(Protocol):
    """What is read of any object's metadata."""

    @property
    def name(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Protocol):
    """What can be listed and watched."""

    @property
    def metadata(self) -> Named: ...


class Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Namespace(Struct, frozen=True):
    metadata: Metadata


AnObject = TypeVar("AnObject", bound=Object)


class ListMetadata(Struct, frozen=True):
    """`next` is what to ask on with, "" at the end."""

    resource_version: str = field(default="", name="resourceVersion")
    next: str = field(default="", name="continue")


class Listed(Struct, Generic[AnObject], frozen=True):
    metadata: ListMetadata
    items: list[AnObject] | None = None


class Event(Struct, frozen=True):
    """One line of a watch. What the object is depends on the type."""

    type: str
    object: Raw


class Mark(Struct, frozen=True):
    """What a bookmark brings: how far the watch has come."""

    metadata: Metadata


class Status(Struct, frozen=True):
    """What an error brings."""

    code: int = 0
    reason: str = ""
    message: str = ""
