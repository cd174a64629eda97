"""Decoder of oversized Pods, of which only the fields are read that say whose they are, and that Podgate guards."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec, SchedulingGate
from webhook.core.kubernetes.pod_identity import bound_identity
from webhook.core.kubernetes.pod_size import OversizedPod, find_template_excess

T_co = TypeVar("T_co", covariant=True)


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    runtime_class_name: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None


class _ReadFields(Struct, frozen=True, gc=False):
    metadata: PodMetadata = PodMetadata()
    spec: _Spec = _Spec()


_read_fields = msgspec.json.Decoder(_ReadFields)
_fields = msgspec.json.Decoder(dict[str, Raw])
_PARTS = ("metadata", "spec")


class Decoder(Protocol[T_co]):
    """A msgspec decoder, or a class with the same method."""

    def decode(self, raw: bytes | Raw, /) -> T_co: ...


def reduce_template(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a decoded Pod template only the fields that identify the owner of its Pods."""
    metadata, spec = template.get("metadata"), template.get("spec")
    parts = (("metadata", metadata, {"labels"}), ("spec", spec, {"runtimeClassName"}))
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
    return Raw(bytes(raw).replace(bytes(template), msgspec.json.encode(reduce_template(parts)))), excess


class OversizedPodDecoder:
    """A `Decoder` of oversized Pods. Of their owners it keeps the controller, the only one that counts."""

    def decode(self, raw: bytes | Raw, /) -> Pod:
        found = _read_fields.decode(raw)
        owners = (owner for owner in found.metadata.owner_references or () if owner.controller)
        metadata = replace(found.metadata, owner_references=tuple(islice(owners, 1)))
        spec = PodSpec(runtime_class_name=found.spec.runtime_class_name, scheduling_gates=found.spec.scheduling_gates)
        return bound_identity(Pod(metadata, spec))
