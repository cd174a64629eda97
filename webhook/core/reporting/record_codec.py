"""Encoded records of decisions and of their Pods. Pods of one controller mostly share the bytes of one recorded Pod."""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from webhook.core.admission.decision import Decision
from webhook.core.admission.pod_results import template_key
from webhook.core.admission.review import Request
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.lru_cache import LruCache
from webhook.core.reporting.decision_record import DecisionRecord, RecordedController, controller_of
from webhook.core.reporting.limit_record import LimitUses, RecordedLimit, limit_rows
from webhook.core.reporting.packed_record import RecordHead, head_of, unpacked
from webhook.core.reporting.pod_compression import compressed, decompressed
from webhook.core.reporting.pod_record import recorded_template

POD_MAX_BYTES = 8 * 1024
"""Size above which a recorded Pod is left out."""
_KEPT = 512
_to_json = msgspec.json.Encoder().encode


class EncodedRecord(Struct, frozen=True, gc=False):
    """A decision record in parts: packed, without Pods and limits; its recorded Pods in JSON, empty if left out.

    Rows of limits are made and Pods are compressed when the record is read or shared: each takes as long as all else.
    """

    packed: bytes
    pod: bytes = b""
    old_pod: bytes = b""
    limits: LimitUses | None = None
    size: int = 0
    """Bytes that it adds to those of earlier records, whose recorded Pod it may share."""

    @property
    def head(self) -> RecordHead:
        return head_of(self.packed)

    def read(self) -> DecisionRecord:
        """Return the whole record."""
        return _whole(self.packed, self._rows(), self.pod, self.old_pod)

    @property
    def shared(self) -> bytes:
        """Return the whole record in its packed form, as replicas share it."""
        rows = tuple([astuple(row) for row in self._rows()])
        return _pack((Raw(self.packed), rows, compressed(self.pod), compressed(self.old_pod)))

    def _rows(self) -> list[RecordedLimit]:
        return [] if self.limits is None else limit_rows(self.limits)


class _SharedLimit(RecordedLimit, frozen=True, gc=False, array_like=True):
    """A limit by the position of its fields."""


class _Shared(Struct, frozen=True, gc=False, array_like=True):
    packed: Raw
    limits: tuple[_SharedLimit, ...]
    pod: bytes
    old_pod: bytes


class _SharedHead(Struct, frozen=True, gc=False, array_like=True):
    """The first field of a shared record."""

    head: RecordHead


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Shared).decode
_unpack_head = msgspec.msgpack.Decoder(_SharedHead).decode


def head_of_shared(raw: bytes) -> RecordHead:
    """Return the head of a record in its shared form. Raises msgspec.MsgspecError."""
    return _unpack_head(raw).head


def record_of_shared(raw: bytes) -> DecisionRecord:
    """Return a record from its shared form. ValueError: it is none."""
    one = _unpack(raw)
    rows = [RecordedLimit(*astuple(row)) for row in one.limits]
    return _whole(
        bytes(one.packed), rows, decompressed(one.pod, POD_MAX_BYTES), decompressed(one.old_pod, POD_MAX_BYTES)
    )


def _whole(packed: bytes, limits: Sequence[RecordedLimit], pod: bytes, old_pod: bytes) -> DecisionRecord:
    pods = {"recorded": pod, "recorded_old": old_pod}
    present = {name: Raw(one) for name, one in pods.items() if one}
    return replace(unpacked(packed), limits=limits, **present)


class RecordedParts(Struct, frozen=True, gc=False):
    """What the records of a Pod's siblings share: the encoded Pod and its controller."""

    pod: bytes
    controller: RecordedController | None
    is_shared: bool = True


class RecordedPods:
    """The recorded Pods that were encoded last. Pods of one controller mostly share one."""

    def __init__(self) -> None:
        self._kept: LruCache[object, RecordedParts] = LruCache(_KEPT)

    def of(self, decision: Decision, request: Request) -> RecordedParts:
        """Return the parts of a record about the request's Pod."""
        pod = request.pod
        if pod is None:
            return _NOTHING
        if request.excess is not None:
            return RecordedParts(b"", controller_of(pod), is_shared=False)
        key = decision.pod_key or template_key(pod)
        if key is None or len(key) > POD_MAX_BYTES or request.old_pod is not None:
            return RecordedParts(_fresh(pod, decision.annotations_read), controller_of(pod), is_shared=False)
        metadata, annotations = pod.metadata, pod.metadata.annotations
        owners = metadata.owner_references
        # An owner's uid tells it from all others.
        by = owners[0].uid if owners and len(owners) == 1 else owners
        is_mirror = annotations is not None and MIRROR_ANNOTATION in annotations
        names = decision.annotations_read
        read = tuple([pod.annotations.get(name) for name in names]) if names else ()
        whole_key = key, metadata.generate_name, by, is_mirror, names, read
        found = self._kept.get(whole_key)
        if found is not None:
            return found
        fresh, controller = _fresh(pod, decision.annotations_read), controller_of(pod)
        self._kept.keep(whole_key, RecordedParts(fresh, controller))
        return RecordedParts(fresh, controller, is_shared=False)


def encoded(packed: bytes, parts: RecordedParts, decision: Decision, request: Request) -> EncodedRecord:
    """Return a record in parts; `packed` is without limits and Pods."""
    asked, receipt, old_pod = decision.asked, decision.receipt, request.old_pod
    uses = None if asked is None or receipt is None else LimitUses(asked, receipt)
    before = b"" if old_pod is None or request.excess is not None else _fresh(old_pod, decision.annotations_read)
    size = len(packed) + len(before) + (0 if parts.is_shared else len(parts.pod))
    return EncodedRecord(packed, parts.pod, before, uses, size)


_NOTHING = RecordedParts(b"", None, is_shared=False)


def _fresh(pod: Pod, annotations: Collection[str]) -> bytes:
    encoded = _to_json(recorded_template(pod, annotations))
    return encoded if len(encoded) <= POD_MAX_BYTES else b""
