"""AdmissionReview v1 response: status, warnings, audit annotations and JSON Patch, encoded.

Source: k8s.io/api/admission/v1.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from webhook.core.kubernetes.admission_request import API_VERSION, KIND
from webhook.core.plain_text import printable, printable_lines

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

    `has_lines`: the message has several lines; else a line break in it is a tenant's, and is escaped.
    """
    denial = None if status is ALLOWED else _denial(status, printable_lines if has_lines else printable)
    kind = None if patch is None else "JSONPatch"
    shown = tuple(map(printable, warnings)) if warnings else None  # the API server drops one with a control character
    response = _Response(uid, denial is None, kind, patch, denial, shown, audit or None)
    return _encode(_Review(API_VERSION, KIND, response))


def _denial(status: ResponseStatus, cleaned: Callable[[str], str]) -> _Status:
    details = None if status.retry_after_seconds is None else _Details(status.retry_after_seconds)
    return _Status(status.code, status.reason, cleaned(status.message), details)
