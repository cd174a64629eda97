"""Record encoder: from a review to its decision record in parts; what Pods of one controller share is encoded once."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from webhook.core.admission.decision import Decision
from webhook.core.admission.pod_results import template_key
from webhook.core.admission.review import Request
from webhook.core.kubernetes.admission_response import ALLOWED
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.lru_cache import LruCache
from webhook.core.reporting.decision_record import controller_of
from webhook.core.reporting.pod_record import recorded_template
from webhook.core.reporting.records.codec import POD_MAX_BYTES, EncodedRecord
from webhook.core.reporting.records.packed import RecordOrigin, group_of, own_fields

_KEPT = 512
_to_json = msgspec.json.Encoder().encode


class _Shared(Struct, frozen=True, gc=False):
    """What the records of a Pod's siblings share: their packed group, and the encoded Pod."""

    group: bytes
    pod: bytes
    labels: Mapping[str, str] | None
    """The labels of the Namespace in the group; a changed Namespace has other ones."""


class RecordEncoder:
    """Keeps the shared parts that were encoded last: a record that finds them takes a quarter fewer instructions."""

    def __init__(self) -> None:
        self._shared: LruCache[object, _Shared] = LruCache(_KEPT)
        self._pods: LruCache[object, bytes] = LruCache(_KEPT)
        """Apart: denials of one Pod's siblings may all have different messages."""

    def encode(
        self,
        decision: Decision,
        request: Request,
        origin: RecordOrigin,
        labels: Mapping[str, str] | None = None,
    ) -> EncodedRecord:
        """Return the record of a review; `labels` are those of its Namespace."""
        own = own_fields(decision, request, origin)
        asked, receipt = decision.asked, decision.receipt
        key = _shared_key(decision, request, origin.stages)
        if key is None:
            group, pod, old_pod = _group(decision, request, origin.stages, labels), b"", b""
            if request.excess is None:
                pod, old_pod = (_encoded(one, decision.annotations_read) for one in (request.pod, request.old_pod))
            return EncodedRecord(
                own, group, pod, old_pod, asked, receipt, len(own) + len(group) + len(pod) + len(old_pod)
            )
        shared = self._shared.peek(key)
        if shared is not None and (shared.labels is labels or shared.labels == labels):
            return EncodedRecord(own, shared.group, shared.pod, b"", asked, receipt, len(own))
        group, pod = _group(decision, request, origin.stages, labels), self._pod(key[:_OF_POD], decision, request)
        self._shared.keep(key, _Shared(group, pod, labels))
        return EncodedRecord(own, group, pod, b"", asked, receipt, len(own) + len(group) + len(pod))

    def _pod(self, key: object, decision: Decision, request: Request) -> bytes:
        pod = self._pods.get(key)
        if pod is None:
            pod = _encoded(request.pod, decision.annotations_read)
            self._pods.keep(key, pod)
        return pod


def _shared_key(decision: Decision, request: Request, stages: tuple[str, ...]) -> tuple[object, ...] | None:
    """Return what the shared parts are made from, but for labels of the Namespace; None if they are not shared.

    The first _OF_POD determine the recorded Pod. It is one flat tuple because all of it is hashed for each record.
    """
    pod = request.pod
    if pod is None or request.excess is not None or request.old_pod is not None:
        return None
    key = decision.pod_key or template_key(pod)
    if key is None or len(key) > POD_MAX_BYTES:
        return None
    metadata, names = pod.metadata, decision.annotations_read
    annotations, owners = metadata.annotations, metadata.owner_references
    return (
        key,
        metadata.generate_name,
        owners[0].uid if owners and len(owners) == 1 else owners,  # an owner's uid tells it from all others
        annotations is not None and MIRROR_ANNOTATION in annotations,
        names,
        tuple([pod.annotations.get(name) for name in names]) if names else (),
        decision.half,
        decision.verdict,
        decision.operation,
        decision.sub_resource,
        decision.dry_run,
        decision.user,
        decision.namespace,
        decision.workload,
        decision.service,
        decision.policy_hash,
        decision.exemption,
        decision.degraded,
        None if decision.status is ALLOWED else decision.status,
        decision.findings,
        decision.uncounted,
        decision.overrides,
        decision.overload,
        stages,
    )


_OF_POD = 6


def _group(decision: Decision, request: Request, stages: tuple[str, ...], labels: Mapping[str, str] | None) -> bytes:
    owner = None if request.pod is None else controller_of(request.pod)
    return group_of(decision, stages, owner, labels)


def _encoded(pod: Pod | None, annotations: Collection[str]) -> bytes:
    if pod is None:
        return b""
    encoded = _to_json(recorded_template(pod, annotations))
    return encoded if len(encoded) <= POD_MAX_BYTES else b""
