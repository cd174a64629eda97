"""Size limits of a Pod, counted in a large body before the Pod is decoded into types.

No real Pod is near them, and etcd stores at most 1.5 MiB. But the mutating webhook receives any request that the API
server accepts (3 MiB), and a hundred thousand labels or containers would delay all other reviews.
"""

import msgspec
from msgspec import Raw, Struct

LARGE_BYTES = 64 << 10
"""Body size above which a Pod is counted first. Smaller bodies cannot delay other reviews."""

CONTAINERS_MAX = 2_000
ENTRIES_MAX = 20_000
_NOTHING = Raw(b"")
_COUNTED = (
    "labels, annotations, ownerReferences, nodeSelector, tolerations, affinity, topologySpreadConstraints,"
    " schedulingGates and resources"
)


class OversizedPod(Struct, frozen=True):
    """A Pod above the size limits. `text` states which limit.

    `has_labels`: its labels are few enough to be read. `was_before`: an UPDATE, and the old Pod was oversized too.
    """

    text: str
    has_labels: bool
    was_before: bool


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


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Request(Struct, frozen=True, rename="camel"):
    object: _Pod | None = None
    old_object: _Pod | None = None


class _Review(Struct, frozen=True):
    request: _Request | None = None


_review = msgspec.json.Decoder(_Review)


def excess(body: bytes) -> OversizedPod | None:
    """Return the excess of an AdmissionReview's Pod over the size limits; None without one, or without a Pod."""
    try:
        request = _review.decode(body).request
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # reported where the body is decoded
    if request is None:
        return None
    now, before = ("" if pod is None else _beyond(pod) for pod in (request.object, request.old_object))
    if not now and not before:
        return None
    labels = (pod.metadata.labels for pod in (request.object, request.old_object) if pod is not None)
    return OversizedPod(now or before, all(_pairs(one) <= ENTRIES_MAX for one in labels), was_before=bool(before))


def _beyond(pod: _Pod) -> str:
    spec, metadata = pod.spec, pod.metadata
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if len(containers) > CONTAINERS_MAX:
        return f"the Pod has {len(containers)} containers, at most {CONTAINERS_MAX} are read: write fewer"
    lists = (getattr(spec, name) for name in _Spec.__struct_fields__[:-2])
    entries = (
        _pairs(metadata.labels)
        + _pairs(metadata.annotations)
        + sum(_commas(raw) for raw in (metadata.owner_references, *lists))
        + sum(_commas(container.resources) for container in containers)
    )
    if entries > ENTRIES_MAX:
        return f"the Pod has {entries} entries in {_COUNTED}, at most {ENTRIES_MAX} are read: write fewer"
    return ""


def _pairs(raw: Raw) -> int:
    """Count the entries of a map of strings by `","`, which occurs in no JSON string: quotes are escaped there."""
    return bytes(raw).count(b'","')


def _commas(raw: Raw) -> int:
    """Return an upper bound of the entries in nested lists and maps; no valid value there contains a comma."""
    return bytes(raw).count(b",")
