"""AdmissionReview v1: the request's envelope decoded, its objects left as raw JSON, and the response encoded.

Unknown fields are skipped: a newer API server may send more. Source: k8s.io/api/admission/v1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.kubernetes.oversized_pod import Decoder
from webhook.core.plain_text import escape_line, escape_lines

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_ECHO_CHARACTERS_MAX = 60  # characters of a caller's text that an error repeats

T = TypeVar("T")


class BadReviewError(Exception):
    """The body is not an AdmissionReview that can be evaluated; the message is safe to return to the caller."""

    def __init__(self, message: str) -> None:
        super().__init__(escape_line(message))  # it may quote a name that a tenant has chosen


class UnreadableReviewError(BadReviewError):
    """It cannot be decoded, perhaps only where no field is read: `make_readable` may help."""


class GroupVersionResource(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct, frozen=True, gc=False):
    username: str = ""


class RawRequest(Struct, frozen=True, rename="camel"):
    """One request; its objects are undecoded."""

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


class ReviewHead(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Envelope(ReviewHead, frozen=True, rename="camel"):
    request: RawRequest | None = None


_head = msgspec.json.Decoder(ReviewHead)
_envelope = msgspec.json.Decoder(_Envelope)


def _decode(decoder: Decoder[T], raw: bytes | Raw, where: str) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise BadReviewError(f"{where}: {error}") from None
    except RecursionError:  # at the interpreter's bound: docs/design/interpreter.md
        raise UnreadableReviewError(f"{where}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableReviewError(f"{where}: {error}") from None


def _decode_envelope(body: bytes) -> _Envelope:
    try:
        envelope = _decode(_envelope, body, KIND)
    except BadReviewError:
        # Report a wrong kind or version before a wrong shape.
        _check_version(_decode(_head, body, KIND))
        raise
    _check_version(envelope)
    return envelope


def _check_version(head: ReviewHead) -> None:
    if head.kind != KIND or head.api_version != API_VERSION:
        raise BadReviewError(
            f"apiVersion {head.api_version[:_ECHO_CHARACTERS_MAX]!r}, kind {head.kind[:_ECHO_CHARACTERS_MAX]!r}:"
            f" expected {API_VERSION!r}, {KIND!r}"
        )


def decode_request(body: bytes) -> RawRequest:
    """Decode an AdmissionReview of any resource. Raises BadReviewError."""
    if not body:
        raise BadReviewError("empty body: an AdmissionReview was expected")
    request = _decode_envelope(body).request
    if request is None:
        raise BadReviewError("AdmissionReview: request is missing")
    if not request.uid:
        raise BadReviewError("AdmissionReview.request.uid is empty")
    return request


def decode_object(raw: Raw, decoder: Decoder[T], where: str) -> T | None:
    """Decode `object` or `oldObject`; None if it is null. Raises BadReviewError with the wrong field."""
    return None if bytes(raw) == b"null" else _decode(decoder, raw, f"AdmissionReview.request.{where}")


_encode = msgspec.json.Encoder().encode


class ResponseStatus(Struct, frozen=True):
    """Status of a response: HTTP code, Kubernetes' `reason` word, message."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after_seconds: int | None = None


ALLOWED = ResponseStatus(200)


class _Details(Struct, frozen=True, gc=False, rename="camel"):
    retry_after_seconds: int


class _Status(Struct, frozen=True, gc=False, omit_defaults=True):
    code: int
    reason: str
    message: str
    details: _Details | None = None


class _Response(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """`patch` and `patchType` are set together or not at all."""

    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: Raw | None = None
    status: _Status | None = None
    warnings: Sequence[str] | None = None
    audit_annotations: Mapping[str, str] | None = None


class _Review(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str
    kind: str
    response: _Response


def respond(
    uid: str,
    status: ResponseStatus,
    warnings: Sequence[str] = (),
    audit: Mapping[str, str] | None = None,
    patch: Raw | None = None,
    *,
    has_lines: bool = False,
) -> bytes:
    """Return the encoded AdmissionReview; any status but ALLOWED denies. `patch` is a JSON Patch in base64, in JSON.

    `has_lines`: the message has several lines; otherwise a line break in it is from a tenant, and is escaped.
    """
    denial = None if status is ALLOWED else _build_denial(status, escape_lines if has_lines else escape_line)
    kind = None if patch is None else "JSONPatch"
    escaped = tuple(map(escape_line, warnings)) if warnings else None  # the API server drops control characters
    response = _Response(uid, denial is None, kind, patch, denial, escaped, audit or None)
    return _encode(_Review(API_VERSION, KIND, response))


def _build_denial(status: ResponseStatus, escape: Callable[[str], str]) -> _Status:
    details = None if status.retry_after_seconds is None else _Details(status.retry_after_seconds)
    return _Status(status.code, status.reason, escape(status.message), details)
