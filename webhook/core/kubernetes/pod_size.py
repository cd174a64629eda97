"""Pod size: the limits on parts of a Pod, counted in a large body before the Pod is decoded into types.

No real Pod is near them, and etcd stores at most 1.5 MiB. But the mutating webhook receives any request that the API
server accepts (3 MiB), and a hundred thousand labels or containers would delay all other reviews. A Pod template of a
workload is counted once it is decoded: a policy says where objects of other kinds have theirs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from webhook.core.json_depth import UNREADABLE_JSON

LARGE_BYTES = 64 << 10
"""Body size above which a Pod with many parts is counted first. Smaller bodies cannot delay other reviews."""
LARGE_CONTAINERS, LARGE_ENTRIES = 100, 2_000
"""Counts above which a Pod could delay other reviews. Most large bodies have few parts with long texts."""

CONTAINERS_MAX = 2_000
ENTRIES_MAX = 20_000
PARTS_MAX = CONTAINERS_MAX - 2
"""Commas up to which a large body needs no count: each of the two lists of containers has one part more than commas."""
_NOTHING = Raw(b"")
_COUNTED = (
    "labels, annotations, ownerReferences, nodeSelector, tolerations, affinity, topologySpreadConstraints,"
    " schedulingGates and resources"
)


class OversizedPod(Struct, frozen=True):
    """A Pod above the size limits. `text` states which limit.

    `was_before`: an UPDATE, and the old Pod was oversized too. `differs`: this one changes what is judged of its spec.
    """

    text: str
    was_before: bool = False
    differs: bool = False


class PodSize(NamedTuple):
    """Size of an AdmissionReview's Pod: whether it could delay other reviews, and which limits it exceeds."""

    is_large: bool
    excess: OversizedPod | None = None


class TemplateSize(NamedTuple):
    """Size of a Pod template, and the limits that its Pods exceed. Entries are counted up to one beyond their limit."""

    containers: int
    entries: int
    excess: OversizedPod | None


class _Container(Struct, frozen=True, gc=False):
    resources: Raw = _NOTHING


class _Metadata(Struct, frozen=True, rename="camel"):
    labels: Raw = _NOTHING
    annotations: Raw = _NOTHING
    owner_references: Raw = _NOTHING


class _Spec(Struct, frozen=True, rename="camel"):
    node_selector: Raw = _NOTHING
    tolerations: Raw = _NOTHING
    affinity: Raw = _NOTHING
    topology_spread_constraints: Raw = _NOTHING
    scheduling_gates: Raw = _NOTHING
    resources: Raw = _NOTHING
    overhead: Raw = _NOTHING
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    scheduler_name: Raw = _NOTHING
    priority_class_name: Raw = _NOTHING
    runtime_class_name: Raw = _NOTHING


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Request(Struct, frozen=True, rename="camel"):
    object: _Pod | None = None
    old_object: _Pod | None = None


class _Review(Struct, frozen=True):
    request: _Request | None = None


_review, _template = msgspec.json.Decoder(_Review), msgspec.json.Decoder(_Pod)
_LISTS_NUMBER = _Spec.__struct_fields__.index("containers")
_COUNTED_FIELDS = _Spec.__struct_encode_fields__[:_LISTS_NUMBER]
"""Fields of the spec in which entries count, besides the lists of containers."""
_COMPARED_FIELDS = tuple(name for name in _Spec.__struct_fields__ if name != "scheduling_gates")
"""Fields that are judged only if the Pod is not oversized. An oversized Pod's gates are read."""


def has_many_parts(body: bytes) -> bool:
    """Return whether the Pod of a large body has to be measured. Most large bodies are few long texts."""
    return body.count(b",") > PARTS_MAX


def measure(body: bytes) -> PodSize:
    """Return the size of the Pod of a large body, the larger one of an UPDATE."""
    try:
        request = _review.decode(body).request or _Request()
    except UNREADABLE_JSON:
        return PodSize(is_large=True)  # reported where the body is decoded
    pods = [pod for pod in (request.object, request.old_object) if pod is not None]
    counts = [_count(pod) for pod in pods]
    is_large = not counts or any(
        not 0 < containers <= LARGE_CONTAINERS or entries > LARGE_ENTRIES  # without containers it is no Pod
        for containers, entries in counts
    )
    excesses = [_describe_excess(*count) for count in counts]
    if not any(excesses):
        return PodSize(is_large)
    was_before = request.old_object is not None and bool(excesses[-1])
    differs = was_before and _differ(pods[0].spec, pods[-1].spec)
    return PodSize(is_large, OversizedPod(excesses[0] or excesses[-1], was_before, differs))


def _differ(new: _Spec, old: _Spec) -> bool:
    """Compare the JSON of fields: the API server encodes both versions of a Pod alike."""
    return any(getattr(new, name) != getattr(old, name) for name in _COMPARED_FIELDS)


def measure_template(template: Mapping[str, Any]) -> TemplateSize:
    """Return the size of a decoded Pod template. Values of a wrong type do not count: no Pod can be decoded of them."""
    metadata, spec = _read(template, "metadata"), _read(template, "spec")
    lists = [spec[name] for name in ("containers", "initContainers") if isinstance(spec.get(name), list)]
    containers = sum(map(len, lists))
    if containers > CONTAINERS_MAX:
        entries = 0
    else:
        amounts = [part.get("resources") for parts in lists for part in parts if isinstance(part, dict)]
        own = [metadata.get("ownerReferences"), *(spec.get(name) for name in _COUNTED_FIELDS), *amounts]
        pairs = sum(_count_gaps(_read(metadata, name)) for name in ("labels", "annotations"))
        entries = _count_nested(own, pairs)
    if containers <= CONTAINERS_MAX and entries <= ENTRIES_MAX:
        return TemplateSize(containers, entries, None)
    text = _describe_excess(containers, entries, more_than=True)
    return TemplateSize(containers, entries, OversizedPod(text))


def find_template_excess(raw: Raw) -> OversizedPod | None:
    """Return the limits that the Pods of an encoded template exceed. Templates of a wrong type exceed none."""
    try:
        template = _template.decode(raw)
    except UNREADABLE_JSON:
        return None
    text = _describe_excess(*_count(template), more_than=True)
    return OversizedPod(text) if text else None


def _read(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = mapping.get(name)
    return found if isinstance(found, Mapping) else {}


def _count_gaps(value: Any) -> int:
    """Return the number of commas between the parts of a value, so that a Pod and its template count alike."""
    return max(len(value) - 1, 0) if isinstance(value, dict | list) else 0


def _count_nested(values: list[Any], entries: int) -> int:
    """Return `entries` and those in nested lists and mappings, at most one more than are allowed."""
    values = list(values)
    while values and entries <= ENTRIES_MAX:
        value = values.pop()
        entries += _count_gaps(value)
        if entries <= ENTRIES_MAX:
            values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return min(entries, ENTRIES_MAX + 1)


def _count(pod: _Pod) -> tuple[int, int]:
    """Return the numbers of containers and of entries; the latter is 0 if there are too many containers anyway."""
    containers = len(pod.spec.containers or ()) + len(pod.spec.init_containers or ())
    return containers, 0 if containers > CONTAINERS_MAX else _count_entries(pod)


def _describe_excess(containers: int, entries: int, *, more_than: bool = False) -> str:
    if containers > CONTAINERS_MAX:
        return f"the Pod has {containers} containers, at most {CONTAINERS_MAX} are read: write fewer"
    if entries > ENTRIES_MAX:
        number = f"more than {ENTRIES_MAX}" if more_than else entries
        return f"the Pod has {number} entries in {_COUNTED}, at most {ENTRIES_MAX} are read: write fewer"
    return ""


def _count_entries(pod: _Pod) -> int:
    spec, metadata = pod.spec, pod.metadata
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    lists = (getattr(spec, name) for name in _Spec.__struct_fields__[:_LISTS_NUMBER])
    return (
        _count_pairs(metadata.labels)
        + _count_pairs(metadata.annotations)
        + sum(_count_commas(raw) for raw in (metadata.owner_references, *lists))
        + sum(_count_commas(container.resources) for container in containers)
    )


def _count_pairs(raw: Raw) -> int:
    """Count the entries of a map of strings by `","`, which occurs in no JSON string: quotes are escaped there."""
    return bytes(raw).count(b'","')


def _count_commas(raw: Raw) -> int:
    """Return an upper bound of the entries in nested lists and maps; no valid value there contains a comma."""
    return bytes(raw).count(b",")
