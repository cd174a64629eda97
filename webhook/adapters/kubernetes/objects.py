"""Kubernetes' own types as they travel, as far as they are read here. Lax on purpose: Go writes null for empty."""

from typing import Generic, TypeVar

from msgspec import Raw, Struct


class Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Object(Struct, frozen=True):
    """All that every object has, and all that a bookmark brings."""

    metadata: Metadata


class ConfigMap(Object, frozen=True, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class Namespace(Object, frozen=True):
    pass


AnObject = TypeVar("AnObject", bound=Object)


class Listed(Struct, Generic[AnObject], frozen=True):
    metadata: Metadata
    items: list[AnObject] | None = None


class Event(Struct, frozen=True):
    """One line of a watch. What the object is depends on the type."""

    type: str
    object: Raw


class Status(Struct, frozen=True):
    """What an error brings."""

    code: int = 0
    reason: str = ""
    message: str = ""
