"""Encoded records of decisions and of their Pods. Pods of one controller mostly share the bytes of one recorded Pod."""

import msgspec
from msgspec import Struct

from webhook.core.admission.decision import Decision
from webhook.core.admission.pod_results import template_key
from webhook.core.admission.review import Request
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.lru_cache import LruCache
from webhook.core.reporting.decision_record import DecisionRecord, RecordedController, controller_of, encode
from webhook.core.reporting.limit_record import LimitUses, limit_rows
from webhook.core.reporting.pod_record import recorded_template

POD_MAX_BYTES = 8 * 1024
"""Size above which a recorded Pod is left out."""
_KEPT = 512
_encode = msgspec.json.Encoder().encode


class EncodedRecord(Struct, frozen=True, gc=False):
    """A decision record in parts: without Pods and limits, its recorded Pods, empty if they are left out, its limits.

    The rows of limits are made when the record is read: that takes as long as all the rest.
    """

    head: bytes
    pod: bytes = b""
    old_pod: bytes = b""
    shares_pod: bool = False
    """An earlier record has the same recorded Pod."""
    limits: LimitUses | None = None

    @property
    def size(self) -> int:
        """Return the number of bytes that this record adds to those of earlier ones."""
        return len(self.head) + len(self.old_pod) + (0 if self.shares_pod else len(self.pod))

    @property
    def json(self) -> bytes:
        """Return the whole record."""
        parts = [self.head[:-1]]
        if self.limits is not None and (rows := limit_rows(self.limits)):
            parts += (b',"limits":', _encode(rows))
        if self.pod:
            parts += (b',"recorded":', self.pod)
        if self.old_pod:
            parts += (b',"recordedOld":', self.old_pod)
        return b"".join((*parts, b"}"))


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
            return RecordedParts(_fresh(pod), controller_of(pod), is_shared=False)
        metadata, annotations = pod.metadata, pod.metadata.annotations
        owners = metadata.owner_references
        # An owner's uid tells it from all others.
        by = owners[0].uid if owners and len(owners) == 1 else owners
        is_mirror = annotations is not None and MIRROR_ANNOTATION in annotations
        whole_key = key, metadata.generate_name, by, is_mirror
        found = self._kept.get(whole_key)
        if found is not None:
            return found
        fresh, controller = _fresh(pod), controller_of(pod)
        self._kept.keep(whole_key, RecordedParts(fresh, controller))
        return RecordedParts(fresh, controller, is_shared=False)


def encoded(record: DecisionRecord, parts: RecordedParts, decision: Decision, request: Request) -> EncodedRecord:
    """Return a record in parts."""
    asked, receipt = decision.asked, decision.receipt
    uses = None if asked is None or receipt is None else LimitUses(asked.plan, asked.cost, receipt)
    old_pod = request.old_pod
    before = b"" if old_pod is None or request.excess is not None else _fresh(old_pod)
    return EncodedRecord(encode(record), parts.pod, before, parts.is_shared, uses)


_NOTHING = RecordedParts(b"", None, is_shared=False)


def _fresh(pod: Pod) -> bytes:
    encoded = _encode(recorded_template(pod))
    return encoded if len(encoded) <= POD_MAX_BYTES else b""
