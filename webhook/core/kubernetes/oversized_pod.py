"""Decoder of oversized Pods, of which only the fields are read that identify their owner and decide exemptions."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.pod_identity import bound_identity
from webhook.core.kubernetes.pod_size import OversizedPod, find_template_excess

T_co = TypeVar("T_co", covariant=True)
_MIRROR = f'"{MIRROR_ANNOTATION}":'.encode()


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    labels: Raw = Raw(b"null")
    annotations: Raw = Raw(b"null")


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    runtime_class_name: str | None = None


class _IdentityFields(Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_identity = msgspec.json.Decoder(_IdentityFields)
_labels = msgspec.json.Decoder(dict[str, str] | None)
_fields = msgspec.json.Decoder(dict[str, Raw])
_PARTS = ("metadata", "spec")


class Decoder(Protocol[T_co]):
    """A msgspec decoder, or a class with the same method."""

    def decode(self, raw: bytes | Raw, /) -> T_co: ...


def reduce_template(template: Mapping[str, Any], excess: OversizedPod) -> dict[str, Any]:
    """Return of a decoded Pod template only the fields that identify the owner of its Pods."""
    metadata, spec = template.get("metadata"), template.get("spec")
    read = {"labels"} if excess.has_labels else set[str]()
    parts = (("metadata", metadata, read), ("spec", spec, {"runtimeClassName"}))
    return {
        name: {key: value for key, value in part.items() if key in fields} if isinstance(part, Mapping) else part
        for name, part, fields in parts
        if part is not None
    }


def reduce_object(raw: Raw, template_at: Sequence[str]) -> tuple[Raw, OversizedPod | None]:
    """Return an encoded object with its Pod template reduced, if that is oversized, before it is decoded."""
    template = raw
    try:
        for key in template_at:
            template = _fields.decode(template)[key]
        excess = find_template_excess(template)
        if excess is None:
            return raw, None
        parts = {name: _fields.decode(part) for name, part in _fields.decode(template).items() if name in _PARTS}
    except (KeyError, *UNREADABLE_JSON):
        return raw, None  # reported where the object is decoded
    return Raw(bytes(raw).replace(bytes(template), msgspec.json.encode(reduce_template(parts, excess)))), excess


class OversizedPodDecoder:
    """A `Decoder` of oversized Pods."""

    def __init__(self, excess: OversizedPod) -> None:
        self._has_labels = excess.has_labels

    def decode(self, raw: bytes | Raw, /) -> Pod:
        found = _identity.decode(raw)
        own = found.metadata
        metadata = PodMetadata(
            own.name,
            own.generate_name,
            own.namespace,
            own.uid,
            labels=_labels.decode(own.labels) if self._has_labels else None,
            annotations={MIRROR_ANNOTATION: ""} if _MIRROR in bytes(own.annotations) else None,
            deletion_timestamp=own.deletion_timestamp,
        )
        return bound_identity(Pod(metadata, PodSpec(runtime_class_name=found.spec.runtime_class_name)))
