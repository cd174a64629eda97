"""AdmissionReview v1 on the wire: bytes in, a typed request out; a decision in, bytes out.

Source: k8s.io/api/admission/v1. Unknown fields are skipped: a newer API server may send more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.admission.decision import ALLOWED, Decision, ResponseStatus
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_bounds import OversizedPod
from webhook.core.kubernetes.pod_templates import BY_RESOURCE
from webhook.core.kubernetes.short_pod import Decoder, ShortPodDecoder
from webhook.core.kubernetes.unsettled_labels import SETTLED, UnsettledLabels
from webhook.core.simulation.reading import pod_of

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_LONGEST_ECHO = 60  # characters of a caller's text that an error repeats

# What carries Pods that a decision reads. Elsewhere the object of `pods` is another kind: Binding, Eviction, a scale.
_PODS_READ = frozenset({("CREATE", ""), ("UPDATE", ""), ("UPDATE", "resize")})

_OBJECT = "AdmissionReview.request.object"

T = TypeVar("T")


class BadReviewError(Exception):
    """The body is no AdmissionReview that we could judge; the message is for the caller, and safe to show."""


class GroupVersionResource(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct, frozen=True, gc=False):
    username: str = ""


class RawRequest(Struct, frozen=True, rename="camel"):
    """One request as it came, its objects undecoded."""

    uid: str
    operation: str
    resource: GroupVersionResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: Raw = Raw(b"null")
    old_object: Raw = Raw(b"null")
    dry_run: bool | None = None


class _Head(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Envelope(_Head, frozen=True, rename="camel"):
    request: RawRequest | None = None


class _PodRequest(Struct, frozen=True, gc=False, rename="camel"):
    """The same of a Pod, in one pass over the body."""

    uid: str
    operation: str
    resource: GroupVersionResource
    sub_resource: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: Pod | None = None
    old_object: Pod | None = None
    dry_run: bool | None = None


class _PodEnvelope(_Head, frozen=True, gc=False, rename="camel"):
    request: _PodRequest | None = None


class WorkloadRequest(Struct, frozen=True, gc=False):
    """A request about a workload object: which one, and who asked for what. Its Pods do not exist yet.

    `unsettled`: those labels of its Pods whose value is not known yet, or differs from Pod to Pod.
    """

    name: str
    operation: str
    user: str
    unsettled: UnsettledLabels = SETTLED


class Request(Struct, frozen=True, gc=False):
    """One request. `pod` and `old_pod` are decoded only where a decision reads them.

    For a `workload` it is the one that its controller would make later: a CREATE of the Pod of its template. Where
    there is an `excess`, they say whose it is, and no more.
    """

    uid: str
    operation: str
    resource: str
    sub_resource: str
    namespace: str
    user: str
    dry_run: bool
    pod: Pod | None
    old_pod: Pod | None
    workload: WorkloadRequest | None = None
    excess: OversizedPod | None = None


_pod_envelope = msgspec.json.Decoder(_PodEnvelope)
_head = msgspec.json.Decoder(_Head)
_envelope = msgspec.json.Decoder(_Envelope)
_pod = msgspec.json.Decoder(Pod)
_any_object = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder()


def _decode(decoder: Decoder[T], raw: bytes | Raw, where: str) -> T:
    try:
        return decoder.decode(raw)
    except RecursionError:
        raise BadReviewError(f"{where}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadReviewError(f"{where}: {error}") from None


def _envelope_of(body: bytes) -> _Envelope:
    try:
        envelope = _decode(_envelope, body, KIND)
    except BadReviewError:
        # Where it is no AdmissionReview v1, its shape is not what is wrong with it.
        _check_version(_decode(_head, body, KIND))
        raise
    _check_version(envelope)
    return envelope


def _check_version(head: _Head) -> None:
    if head.kind != KIND or head.api_version != API_VERSION:
        raise BadReviewError(
            f"apiVersion {head.api_version[:_LONGEST_ECHO]!r}, kind {head.kind[:_LONGEST_ECHO]!r}:"
            f" expected {API_VERSION!r}, {KIND!r}"
        )


def request_of(body: bytes) -> RawRequest:
    """Read an AdmissionReview of anything; BadReviewError names what is wrong with it."""
    if not body:
        raise BadReviewError("empty body: an AdmissionReview was expected")
    request = _envelope_of(body).request
    if request is None:
        raise BadReviewError("AdmissionReview: request is missing")
    if not request.uid:
        raise BadReviewError("AdmissionReview.request.uid is empty")
    return request


def decode(body: bytes, excess: OversizedPod | None = None) -> Request:
    """Read an AdmissionReview of a Pod or a workload; BadReviewError names what is wrong with it."""
    return (_at_once(body) if excess is None else None) or _step_by_step(body, excess)


def _at_once(body: bytes) -> Request | None:
    """Read the review of a Pod in one pass, 9 us sooner; None where it is anything else, or anything is wrong."""
    try:
        envelope = _pod_envelope.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    request = envelope.request
    if request is None or not request.uid or envelope.kind != KIND or envelope.api_version != API_VERSION:
        return None
    resource = request.resource
    if resource.resource != "pods" or resource.group or (request.operation, request.sub_resource) not in _PODS_READ:
        return None
    return Request(
        request.uid,
        request.operation,
        "pods",
        request.sub_resource,
        request.namespace,
        request.user_info.username,
        bool(request.dry_run),
        request.object,
        request.old_object,
    )


def _step_by_step(body: bytes, excess: OversizedPod | None = None) -> Request:
    request = request_of(body)
    of_template = _of_template(request)
    if of_template is not None:
        return of_template
    is_pod = request.resource.resource == "pods" and request.resource.group == ""
    has_pods = is_pod and (request.operation, request.sub_resource) in _PODS_READ
    pods = _pod if excess is None else ShortPodDecoder(excess)
    return Request(
        uid=request.uid,
        operation=request.operation,
        resource="pods" if is_pod else f"{request.resource.resource}.{request.resource.group}",
        sub_resource=request.sub_resource,
        namespace=request.namespace,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        pod=object_of(request.object, pods, "object") if has_pods else None,
        old_pod=object_of(request.old_object, pods, "oldObject") if has_pods else None,
        excess=excess if has_pods else None,
    )


def _of_template(request: RawRequest) -> Request | None:
    source = BY_RESOURCE.get((request.resource.group, request.resource.resource))
    if source is None or request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
        return None
    made_from = object_of(request.object, _any_object, "object")
    is_stored = not (request.dry_run and request.operation == "CREATE")
    try:
        made = pod_of(made_from or {}, source, request.namespace, is_stored=is_stored)
    except msgspec.ValidationError as error:
        raise BadReviewError(f"{_OBJECT}: {error}") from None
    if made is None:
        return None
    return Request(
        uid=request.uid,
        operation="CREATE",
        resource="pods",
        sub_resource="",
        namespace=request.namespace,
        user=source.controller,
        dry_run=bool(request.dry_run),
        pod=made.pod,
        old_pod=None,
        workload=WorkloadRequest(made.owner, request.operation, request.user_info.username, made.unsettled),
    )


def object_of(raw: Raw, decoder: Decoder[T], where: str) -> T | None:
    """Decode `object` or `oldObject`, None where it is null; BadReviewError names the field that is wrong."""
    return None if bytes(raw) == b"null" else _decode(decoder, raw, f"AdmissionReview.request.{where}")


class _Details(Struct, frozen=True, gc=False, rename="camel"):
    retry_after_seconds: int


class _Status(Struct, frozen=True, gc=False, omit_defaults=True):
    code: int
    reason: str
    message: str
    details: _Details | None = None


class _Response(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """`patch` and `patchType` come together or not at all; bytes travel as base64."""

    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None
    status: _Status | None = None
    warnings: Sequence[str] | None = None
    audit_annotations: Mapping[str, str] | None = None


class _Answer(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    api_version: str = API_VERSION
    kind: str = KIND
    response: _Response


def encode(decision: Decision) -> bytes:
    """Return the answer's bytes."""
    patch = _encoder.encode(decision.patch) if decision.patch else None
    return respond(decision.review_uid, decision.status, decision.warnings, decision.audit, patch)


def respond(
    uid: str,
    status: ResponseStatus,
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
    patch: bytes | None = None,
) -> bytes:
    """Return an answer's bytes; any status but ALLOWED refuses. `patch` is a JSON Patch."""
    refusal = None
    if status is not ALLOWED:
        details = None if status.retry_after_seconds is None else _Details(status.retry_after_seconds)
        refusal = _Status(status.code, status.reason, status.message, details)
    kind = None if patch is None else "JSONPatch"
    response = _Response(uid, refusal is None, kind, patch, refusal, warnings or None, audit or None)
    return _encoder.encode(_Answer(response=response))
