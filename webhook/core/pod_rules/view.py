"""View of a Pod: what the rules of a service read of it, decoded from its JSON in one pass that skips all else."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from webhook.core.pod_rules.conversion import convert_containers, convert_field, name_fields
from webhook.core.pod_rules.fields import CONTAINERS, Field
from webhook.core.pod_rules.view_types import SIZE, ViewTypes, find_source

_NULL = Raw(b"null")
_OF_METADATA = frozenset({"name", "generateName", "labels", "annotations"})
_OF_SUBJECT = frozenset({"namespace", "ownerKind"})


class RuleSubject(NamedTuple):
    """What a rule reads beside the Pod's fields; `owner_kind`: "" unless a Kubernetes controller creates the Pod."""

    namespace: str
    service: str
    user: str
    owner_kind: str = ""


class PodFields(NamedTuple):
    """Fields of the message Pod. `excess`: why a rule that reads a field cannot judge the Pod."""

    values: dict[str, Any]
    excess: Mapping[Field, str]


class _Parts(Struct, frozen=True):
    metadata: dict[str, Raw] = {}
    spec: dict[str, Raw] = {}


_parts = msgspec.json.Decoder(_Parts)
_containers = msgspec.json.Decoder(Annotated[list[dict[str, Raw]], SIZE] | None)


class ViewReader:
    """Reads a Pod for rules that read only these fields."""

    def __init__(self, reads: frozenset[Field]) -> None:
        self._made = ViewTypes(reads)
        names = sorted(name for message, name in reads if message == "Pod" and name not in _OF_SUBJECT)
        self._types = {find_source(name): self._made.make_source_type(name) for name in names}
        metadata = {name: kind for name, kind in self._types.items() if name in _OF_METADATA}
        spec = {name: kind for name, kind in self._types.items() if name not in _OF_METADATA}
        whole = {"metadata": self._made.define("Metadata", metadata), "spec": self._made.define("Spec", spec)}
        self._decoder = msgspec.json.Decoder(self._made.define("Pod", whole))

    def read(self, raw: bytes | Raw, subject: RuleSubject) -> PodFields:
        """Return the fields that rules read of a Pod in JSON. msgspec.ValidationError: it is no Pod."""
        excess: dict[Field, str] = {}
        try:
            found = msgspec.to_builtins(self._decoder.decode(raw))
            given = {**found.get("metadata", {}), **found.get("spec", {})}
        except msgspec.ValidationError:
            given = self._read_apart(raw, excess)
        values: dict[str, Any] = {"namespace": subject.namespace, "ownerKind": subject.owner_kind}
        for name, value in given.items():
            if name in CONTAINERS:
                values[name] = convert_containers(value, excess)
                continue
            try:
                values |= convert_field(name, value)
            except ValueError as error:
                excess |= dict.fromkeys(name_fields("Pod", name), f"pod.{name}: {error}")
        return PodFields(values, excess)

    def _read_apart(self, raw: bytes | Raw, excess: dict[Field, str]) -> dict[str, Any]:
        """Return the readable fields of a Pod that has an unreadable one, so that only rules about that one fail."""
        parts = _parts.decode(raw)
        given: dict[str, Any] = {}
        for name, decoder in self._decoders["Pod"].items():
            part = (parts.metadata if name in _OF_METADATA else parts.spec).get(name, _NULL)
            try:
                given[name] = (
                    [self._read_container_apart(container, excess) for container in _containers.decode(part) or ()]
                    if name in CONTAINERS
                    else msgspec.to_builtins(decoder.decode(part))
                )
            except msgspec.ValidationError as error:
                excess |= dict.fromkeys(name_fields("Pod", name), _describe(f"pod.{name}", error))
        return {name: value for name, value in given.items() if value is not None}

    def _read_container_apart(self, container: Mapping[str, Raw], excess: dict[Field, str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, decoder in self._decoders["Container"].items():
            try:
                given[name] = msgspec.to_builtins(decoder.decode(container.get(name, _NULL)))
            except msgspec.ValidationError as error:
                excess |= dict.fromkeys(name_fields("Container", name), _describe(f"a container's {name}", error))
        return {name: value for name, value in given.items() if value is not None}

    @cached_property
    def _decoders(self) -> dict[str, dict[str, Any]]:
        types = {"Pod": self._types, "Container": self._made.list_types("Container")}
        return {
            message: {name: msgspec.json.Decoder(kind | None) for name, kind in fields.items()}
            for message, fields in types.items()
        }


def _describe(where: str, error: msgspec.ValidationError) -> str:
    """Return an error of the decoder for people: `pod.labels: expected `object` of length <= 50`."""
    reason, _, place = str(error).partition(" - at `$")
    return f"{where}{place.rstrip('`')}: {reason[:1].lower()}{reason[1:].replace(' | null', '')}"
