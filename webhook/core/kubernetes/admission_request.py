"""AdmissionReview v1 request: its envelope decoded, its objects left as raw JSON.

Source: k8s.io/api/admission/v1. Unknown fields are skipped: a newer API server may send more.
"""

from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.kubernetes.oversized_pod import Decoder

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_LONGEST_ECHO = 60  # characters of a caller's text that an error repeats

T = TypeVar("T")


class BadReviewError(Exception):
    """The body is not an AdmissionReview that can be evaluated; the message is safe to return to the caller."""


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
    except RecursionError:
        raise BadReviewError(f"{where}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadReviewError(f"{where}: {error}") from None


def _envelope_of(body: bytes) -> _Envelope:
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
            f"apiVersion {head.api_version[:_LONGEST_ECHO]!r}, kind {head.kind[:_LONGEST_ECHO]!r}:"
            f" expected {API_VERSION!r}, {KIND!r}"
        )


def request_of(body: bytes) -> RawRequest:
    """Decode an AdmissionReview of any resource. Raises BadReviewError."""
    if not body:
        raise BadReviewError("empty body: an AdmissionReview was expected")
    request = _envelope_of(body).request
    if request is None:
        raise BadReviewError("AdmissionReview: request is missing")
    if not request.uid:
        raise BadReviewError("AdmissionReview.request.uid is empty")
    return request


def object_of(raw: Raw, decoder: Decoder[T], where: str) -> T | None:
    """Decode `object` or `oldObject`; None if it is null. Raises BadReviewError with the wrong field."""
    return None if bytes(raw) == b"null" else _decode(decoder, raw, f"AdmissionReview.request.{where}")
