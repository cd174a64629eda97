"""Record encoder: turns a review into its decision record; parts that Pods of one controller share are encoded once."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission.decision import Decision, DecisionInputs
from webhook.core.admission.pod_results import encode_template_key
from webhook.core.admission.review import Request
from webhook.core.findings import shorten_text, shorten_value
from webhook.core.kubernetes.admission_request import ALLOWED
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.lru_cache import LruCache
from webhook.core.placement import reduce_managers
from webhook.core.reporting.decision_record import find_controller
from webhook.core.reporting.packed_record import pack_group, pack_own, shared_values
from webhook.core.reporting.pod_record import record_template
from webhook.core.reporting.record_codec import POD_BYTES_MAX, EncodedRecord
from webhook.ports import Review

_KEPT_MAX = 512
_OWNERS_MAX = 8
_ANNOTATION_CHARACTERS_MAX = 8 * 1024
"""Bounds of what is kept for siblings. A Pod may have any number of owners, and annotations of any length."""
_GROUP_BYTES_MAX = 16 * 1024
_FINDINGS_MAX = 20
"""Of a group that is larger: its messages are shortened then."""
_to_json = msgspec.json.Encoder().encode


class _Shared(Struct, frozen=True, gc=False):
    """Parts that the records of a Pod's siblings share: their packed group, and the encoded Pod."""

    group: bytes
    pod: bytes
    labels: Mapping[str, str] | None
    """The labels of the Namespace in the group; a changed Namespace has other ones."""


class RecordEncoder:
    """Encodes the records of one replica, and numbers them in the order of time.

    It keeps the shared parts that were encoded last, so that the next record need not encode them.
    """

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._last_ms = self._number = 0
        self._shared: LruCache[object, _Shared] = LruCache(_KEPT_MAX)
        self._pods: LruCache[object, bytes] = LruCache(_KEPT_MAX)
        """Kept separately: denials of one Pod's siblings may all have different messages."""

    def encode(self, review: Review, request: Request, labels: Mapping[str, str] | None = None) -> EncodedRecord:
        """Return the record of a review of `request`; `labels` are those of its Namespace."""
        decision, stages = review.decision, review.stages
        asked, receipt = decision.charge.asked, decision.charge.receipt
        own = self._encode_own(review, request)
        key = _build_shared_key(decision, request, stages)
        if key is None:
            group, pod, old_pod = _encode_group(decision, request, stages, labels), b"", b""
            if request.excess is None:
                pod, old_pod = (
                    _encode_template(version, decision.inputs.annotations_read)
                    for version in (request.pod, request.old_pod)
                )
            return EncodedRecord(
                own, group, pod, old_pod, asked, receipt, len(own) + len(group) + len(pod) + len(old_pod)
            )
        shared = self._shared.peek(key)
        if shared is not None and (shared.labels is labels or shared.labels == labels):
            return EncodedRecord(own, shared.group, shared.pod, b"", asked, receipt, len(own))
        group = _encode_group(decision, request, stages, labels)
        if _may_be_kept(key):
            pod = self._encode_pod(key[:_POD_KEY_LENGTH], decision, request)
            self._shared.keep(key, _Shared(group, pod, labels))
        else:
            pod = _encode_template(request.pod, decision.inputs.annotations_read)
        return EncodedRecord(own, group, pod, b"", asked, receipt, len(own) + len(group) + len(pod))

    def _encode_own(self, review: Review, request: Request) -> bytes:
        """Return the encoded part that no other record shares."""
        at_ns = review.started_ns + review.duration_ns
        at_ms = at_ns // 1_000_000
        if at_ms > self._last_ms:
            self._last_ms, self._number = at_ms, 0
        else:  # identifiers never go back, even if the clock does
            self._number += 1
        decision, pod, trace = review.decision, request.pod, review.trace
        receipt = decision.charge.receipt
        view = None if receipt is None else receipt.breaker
        own = (
            self._last_ms,
            self._number,
            self._replica,
            "" if pod is None else pod.metadata.name or pod.metadata.generate_name,
            decision.pod_uid,
            at_ns,
            review.ends_ns,
            "" if trace is None else trace.span.trace_id,
            None if view is None else (view.state, view.generation, view.open_until_us, view.reason),
        )
        return pack_own(own if decision.inputs.slot is None else (*own, _list_slot_fields(decision.inputs)))

    def _encode_pod(self, key: object, decision: Decision, request: Request) -> bytes:
        pod = self._pods.get(key)
        if pod is None:
            pod = _encode_template(request.pod, decision.inputs.annotations_read)
            self._pods.keep(key, pod)
        return pod


def _build_shared_key(decision: Decision, request: Request, stages: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the inputs of the shared parts, except labels of the Namespace; None if they are not shared.

    The first items determine the recorded Pod. It is one flat tuple because all of it is hashed for each record.
    """
    pod = request.pod
    if pod is None or request.excess is not None or request.old_pod is not None:
        return None
    key = decision.inputs.pod_key or encode_template_key(pod)
    if key is None or len(key) > POD_BYTES_MAX:
        return None
    metadata, names = pod.metadata, decision.inputs.annotations_read
    annotations, owners = metadata.annotations, metadata.owner_references
    of_pod = (
        key,
        metadata.generate_name,
        owners[0].uid if owners and len(owners) == 1 else owners,  # its uid alone identifies an owner
        annotations is not None and MIRROR_ANNOTATION in annotations,
        names,
        tuple([pod.annotations.get(name) for name in names]) if names else (),
        bytes(reduce_managers(metadata)) if pod.spec.priority_class_name else b"",
        stages,
    )
    return of_pod + shared_values(decision)


_POD_KEY_LENGTH = 7
_OWNERS_AT, _ANNOTATIONS_AT = 2, 5


def _may_be_kept(key: tuple[Any, ...]) -> bool:
    """Return whether a key is small enough to be kept: its other parts are bounded."""
    owners, annotations = key[_OWNERS_AT], key[_ANNOTATIONS_AT]
    if not isinstance(owners, str) and len(owners or ()) > _OWNERS_MAX:
        return False
    return sum(len(value) for value in annotations if value) <= _ANNOTATION_CHARACTERS_MAX


def _list_slot_fields(inputs: DecisionInputs) -> tuple[int, str, str, str] | None:
    """Return the fields of a `RecordedSlot`."""
    slot = inputs.slot
    if slot is None:
        return None
    return slot.slot, slot.variant, slot.intended if slot.fell_back else "", inputs.slot_reason


def _encode_group(
    decision: Decision, request: Request, stages: tuple[str, ...], labels: Mapping[str, str] | None
) -> bytes:
    owner = None if request.pod is None else find_controller(request.pod)
    group = pack_group(decision, stages, owner, labels)
    return group if len(group) <= _GROUP_BYTES_MAX else pack_group(_shorten_messages(decision), stages, owner)


def _shorten_messages(decision: Decision) -> Decision:
    findings = [
        replace(finding, message=shorten_value(finding.message)) for finding in decision.findings[:_FINDINGS_MAX]
    ]
    status = decision.status
    if status is not ALLOWED:
        status = replace(status, message=shorten_text(status.message))
    return replace(decision, findings=tuple(findings), status=status)


def _encode_template(pod: Pod | None, annotations: Collection[str]) -> bytes:
    if pod is None:
        return b""
    encoded = _to_json(record_template(pod, annotations))
    return encoded if len(encoded) <= POD_BYTES_MAX else b""
