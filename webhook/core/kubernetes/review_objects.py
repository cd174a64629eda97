"""Objects of a review as JSON, for what reads more of them than decisions do: rules in CEL."""

import msgspec
from msgspec import Raw, Struct


class _Objects(Struct, frozen=True, gc=False, rename="camel"):
    object: Raw = Raw(b"null")
    old_object: Raw = Raw(b"null")


class _ObjectsEnvelope(Struct, frozen=True, gc=False):
    request: _Objects


class _ImageOnly(Struct, frozen=True, gc=False):
    image: str | None = None


class _ImagesOfSpec(Struct, frozen=True, gc=False):
    containers: tuple[_ImageOnly, ...] | None = None


class _ImagesOfPod(Struct, frozen=True, gc=False):
    spec: _ImagesOfSpec = _ImagesOfSpec()


class _ImagesOfRequest(Struct, frozen=True, gc=False):
    object: _ImagesOfPod = _ImagesOfPod()


class _ImagesEnvelope(Struct, frozen=True, gc=False):
    request: _ImagesOfRequest


_images = msgspec.json.Decoder(_ImagesEnvelope)
_objects = msgspec.json.Decoder(_ObjectsEnvelope)


def find_objects(body: bytes) -> tuple[Raw, Raw]:
    """Return the JSON of `object` and `oldObject` of a review that has been decoded."""
    request = _objects.decode(body).request
    return request.object, request.old_object


def has_images(body: bytes) -> bool:
    """Whether the Pod of a decoded review names an image, as every Pod of an API server does."""
    return any(container.image for container in _images.decode(body).request.object.spec.containers or ())
