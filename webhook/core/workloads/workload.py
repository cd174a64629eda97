"""Workload object under simulation, and the fields that a controller adds to its template."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from webhook.core.kubernetes.controllers import WorkloadKind
from webhook.core.kubernetes.label_constraints import UnresolvedLabel

Json = Mapping[str, Any]

HASH = "[456789bcdf]{1,10}"
"""A 32-bit hash as encoded by `SafeEncodeString`."""
REVISION_LABEL = "controller-revision-hash"
GENERATED_FROM_MAX = 58
_WHOLE_MAX = 2**31 - 1
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"


class GeneratedName(NamedTuple):
    """A name, or a placeholder for a generated one, and the pattern that it matches."""

    shown: str
    pattern: str

    @classmethod
    def from_metadata(cls, metadata: Json, *, is_stored: bool) -> "GeneratedName":
        """Return an object's name. A name that was generated in a dry run is ignored."""
        name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
        if name and (is_stored or not prefix):
            return cls(name, re.escape(name))
        prefix = prefix[:GENERATED_FROM_MAX]
        return cls(f"{prefix}<name>", f"{re.escape(prefix)}{_GENERATED}")

    @property
    def is_known(self) -> bool:
        return self.pattern == re.escape(self.shown)

    def append(self, shown: str, pattern: str = "") -> "GeneratedName":
        return GeneratedName(self.shown + shown, self.pattern + (pattern or re.escape(shown)))

    def build_label(self) -> str | UnresolvedLabel:
        return self.shown if self.is_known else UnresolvedLabel(self.shown, self.pattern)


class WorkloadObject(NamedTuple):
    """An object from which Pods are created; for a CronJob `spec` is that of its Jobs.

    `is_stored`: the object's name and uid are final, as they are not in a dry run of CREATE.
    """

    source: WorkloadKind
    name: GeneratedName
    metadata: Json
    spec: Json
    template: Json
    is_stored: bool

    @property
    def pod_spec(self) -> Json:
        return read_mapping(self.template.get("spec"))


class Additions(Struct, frozen=True, gc=False):
    """Fields that a controller adds to the template; `maker` is the object that owns the Pods.

    `name`: the Pod's name if it is not generated. `prefix`: an unusual generateName.
    """

    maker: GeneratedName
    labels: Mapping[str, str | UnresolvedLabel] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    name: GeneratedName | None = None
    prefix: str = ""
    spec: Json = {}


# A file may contain anything: wrong types in a Pod are reported where the Pod is decoded.


def read_mapping(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def read_items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def read_whole(value: Any, default: int) -> int:
    """Return a whole number, as the API has them with 32 bits; another value is the API server's to refuse."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _WHOLE_MAX else default
