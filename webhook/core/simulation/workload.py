"""A workload object while its Pods are simulated, and what a controller adds to its template."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from webhook.core.kubernetes.pod_templates import WorkloadKind
from webhook.core.kubernetes.unresolved_labels import UnresolvedLabel

Json = Mapping[str, Any]

HASH = "[456789bcdf]{1,10}"
"""A 32-bit sum in decimal, in letters that make no words: `SafeEncodeString`."""
REVISION_LABEL = "controller-revision-hash"
GENERATED_FROM_MAX = 58
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"


class GeneratedName(NamedTuple):
    """A name, or what stands in for one that is generated, and what it may be."""

    shown: str
    pattern: str

    @classmethod
    def of(cls, metadata: Json, *, is_stored: bool) -> "GeneratedName":
        """Read an object's name. One that a dry run has generated is nobody's."""
        name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
        if name and (is_stored or not prefix):
            return cls(name, re.escape(name))
        prefix = prefix[:GENERATED_FROM_MAX]
        return cls(f"{prefix}<name>", f"{re.escape(prefix)}{_GENERATED}")

    @property
    def is_known(self) -> bool:
        return self.pattern == re.escape(self.shown)

    def plus(self, shown: str, pattern: str = "") -> "GeneratedName":
        return GeneratedName(self.shown + shown, self.pattern + (pattern or re.escape(shown)))

    def label(self) -> str | UnresolvedLabel:
        return self.shown if self.is_known else UnresolvedLabel(self.shown, self.pattern)


class WorkloadObject(NamedTuple):
    """An object of which Pods are made; `spec` is a CronJob's Jobs' own.

    `is_stored`: the API server has given the object its name and its uid, and will store it with them.
    """

    source: WorkloadKind
    name: GeneratedName
    metadata: Json
    spec: Json
    template: Json
    is_stored: bool

    @property
    def pod_spec(self) -> Json:
        return mapping(self.template.get("spec"))


class Additions(Struct, frozen=True, gc=False):
    """What a controller adds to the template; `maker` is the object that owns the Pods.

    `name` is the Pod's own where none is generated; `prefix` is what it is generated from where that is not usual.
    """

    maker: GeneratedName
    labels: Mapping[str, str | UnresolvedLabel] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    name: GeneratedName | None = None
    prefix: str = ""
    spec: Json = {}


# A file may hold anything: what is wrong in a Pod is named where the Pod is decoded.


def mapping(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
