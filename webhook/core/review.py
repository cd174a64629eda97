"""AdmissionReview v1 on the wire: bytes in, a typed request out; a decision in, bytes out.

Source: k8s.io/api/admission/v1. Unknown fields are skipped: a newer API server may send more.
"""

import base64
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.decision import Decision
from webhook.core.pod import Pod

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_LONGEST_ECHO = 60  # characters of a caller's text that an error repeats

# What carries Pods that a decision reads. Elsewhere the object of `pods` is another kind: Binding, Eviction, a scale.
_PODS_READ = frozenset({("CREATE", ""), ("UPDATE", ""), ("UPDATE", "resize")})

T = TypeVar("T")


class BadReviewError(Exception):
    """The body is no AdmissionReview that we could judge; the message is for the caller, and safe to show."""


class GroupVersionResource(Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct, frozen=True):
    username: str = ""


class _Request(Struct, frozen=True, rename="camel"):
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
    request: _Request | None = None


class Request(Struct, frozen=True):
    """One request. `pod` and `old_pod` are decoded only where a decision reads them."""

    uid: str
    operation: str
    resource: str
    sub_resource: str
    namespace: str
    user: str
    dry_run: bool
    pod: Pod | None
    old_pod: Pod | None


_head = msgspec.json.Decoder(_Head)
_envelope = msgspec.json.Decoder(_Envelope)
_pod = msgspec.json.Decoder(Pod)
_encoder = msgspec.json.Encoder()


def _decode(decoder: "msgspec.json.Decoder[T]", raw: bytes | Raw, where: str) -> T:
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


def decode(body: bytes) -> Request:
    """Read an AdmissionReview; BadReviewError names what is wrong with it."""
    if not body:
        raise BadReviewError("empty body: an AdmissionReview was expected")
    request = _envelope_of(body).request
    if request is None:
        raise BadReviewError("AdmissionReview: request is missing")
    if not request.uid:
        raise BadReviewError("AdmissionReview.request.uid is empty")
    is_pod = request.resource.resource == "pods" and request.resource.group == ""
    has_pods = is_pod and (request.operation, request.sub_resource) in _PODS_READ
    return Request(
        uid=request.uid,
        operation=request.operation,
        resource="pods" if is_pod else f"{request.resource.resource}.{request.resource.group}",
        sub_resource=request.sub_resource,
        namespace=request.namespace,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        pod=_pod_of(request.object, "object") if has_pods else None,
        old_pod=_pod_of(request.old_object, "oldObject") if has_pods else None,
    )


def _pod_of(raw: Raw, where: str) -> Pod | None:
    return None if bytes(raw) == b"null" else _decode(_pod, raw, f"AdmissionReview.request.{where}")


def encode(decision: Decision) -> bytes:
    """Return the answer's bytes. `patch` and `patchType` come together or not at all."""
    response: dict[str, Any] = {"uid": decision.review_uid, "allowed": decision.allowed}
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_encoder.encode(decision.patch)).decode()
    if not decision.allowed:
        status = decision.status
        response["status"] = {"code": status.code, "reason": status.reason, "message": status.message}
        if status.retry_after_seconds is not None:
            response["status"]["details"] = {"retryAfterSeconds": status.retry_after_seconds}
    if decision.warnings:
        response["warnings"] = decision.warnings
    if decision.audit:
        response["auditAnnotations"] = decision.audit
    return _encoder.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
