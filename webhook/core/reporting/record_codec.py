"""Encoded records of decisions and of their Pods. Pods of one controller mostly share the bytes of one recorded Pod."""

from typing import NamedTuple

import msgspec

from webhook.core.admission.decision import Decision
from webhook.core.admission.pod_results import template_key
from webhook.core.admission.review import Request
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.lru_cache import LruCache
from webhook.core.reporting.decision_record import DecisionRecord, encode
from webhook.core.reporting.pod_record import recorded_template

POD_MAX_BYTES = 8 * 1024
"""Size above which a recorded Pod is left out."""
_KEPT = 512
_encode = msgspec.json.Encoder().encode


class EncodedRecord(NamedTuple):
    """A decision record in parts: without Pods, and its recorded Pods; these are empty if they are left out."""

    head: bytes
    pod: bytes = b""
    old_pod: bytes = b""
    shares_pod: bool = False
    """An earlier record has the same recorded Pod."""

    @property
    def size(self) -> int:
        """Return the number of bytes that this record adds to those of earlier ones."""
        return len(self.head) + len(self.old_pod) + (0 if self.shares_pod else len(self.pod))

    @property
    def json(self) -> bytes:
        """Return the whole record."""
        parts = [self.head[:-1]]
        if self.pod:
            parts += (b',"recorded":', self.pod)
        if self.old_pod:
            parts += (b',"recordedOld":', self.old_pod)
        return b"".join((*parts, b"}"))


class RecordedPods:
    """Encoder of records, with the recorded Pods that it encoded last."""

    def __init__(self) -> None:
        self._kept: LruCache[object, bytes] = LruCache(_KEPT)

    def encoded(self, record: DecisionRecord, decision: Decision, request: Request) -> EncodedRecord:
        """Return the encoded record with the Pods of its request."""
        pod, old_pod = request.pod, request.old_pod
        if pod is None or request.excess is not None:
            return EncodedRecord(encode(record))
        if old_pod is not None:
            return EncodedRecord(encode(record), _fresh(pod), _fresh(old_pod))
        key = decision.pod_key or template_key(pod)
        if key is None or len(key) > POD_MAX_BYTES:
            return EncodedRecord(encode(record), _fresh(pod))
        metadata, annotations = pod.metadata, pod.metadata.annotations
        is_mirror = annotations is not None and MIRROR_ANNOTATION in annotations
        whole_key = key, is_mirror, metadata.generate_name, metadata.owner_references
        found = self._kept.get(whole_key)
        if found is not None:
            return EncodedRecord(encode(record), found, shares_pod=True)
        found = _fresh(pod)
        self._kept.keep(whole_key, found)
        return EncodedRecord(encode(record), found)


def _fresh(pod: Pod) -> bytes:
    encoded = _encode(recorded_template(pod))
    return encoded if len(encoded) <= POD_MAX_BYTES else b""
