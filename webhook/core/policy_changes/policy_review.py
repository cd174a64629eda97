"""Admission of the policy document: the review of its ConfigMap, whose response has all errors at once."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.assembly import assemble
from webhook.core.document.configmap import (
    KEY,
    NAME,
    NAMESPACE,
    OVERRIDES,
    PART_PREFIX,
    ConfigMap,
    NoDocumentError,
    check_label,
    read_document,
)
from webhook.core.document.loading import load_unproved
from webhook.core.json_depth import make_readable
from webhook.core.kubernetes.admission_request import (
    ALLOWED,
    BadReviewError,
    ResponseStatus,
    UnreadableReviewError,
    decode_object,
    decode_request,
    respond,
)
from webhook.core.policy.model import Policy
from webhook.core.quota.counter_resets import find_resets
from webhook.core.webhook_configurations import ClientConfig, TooManyEntriesError, render_configurations

_LINES_MAX = 100
_FRESH_MAX = 20
"""Limit of warnings about counters: clients show every warning; the server's log has all of them."""
_ANY = ClientConfig("https://podgate", b"")
_config_map = msgspec.json.Decoder(ConfigMap)


class PolicyReview(Struct, frozen=True):
    """The response, and the errors found. `judged` is False for requests that Podgate does not judge."""

    body: bytes
    user: str
    judged: bool
    errors: tuple[str, ...] = ()
    document: str = "policy"
    """Name of the reviewed document."""


class DocumentReview(Struct, frozen=True):
    """A document to review, as decoded from its AdmissionReview."""

    uid: str
    user: str
    new: ConfigMap
    old: ConfigMap | None
    purpose: Purpose = Purpose.SERVE
    """The kind of server that will use it."""
    is_of_overrides: bool = False
    part: str = ""
    """The name of the part that the document is, "" for the root."""
    root: bytes = b""
    parts: Mapping[str, bytes] = {}
    """The newest texts of the root and of all parts, with which the document is checked."""


def judge(body: bytes, purpose: Purpose = Purpose.SERVE) -> PolicyReview:
    """Review a document as a server in this cluster would load it. BadReviewError: not an AdmissionReview."""
    asked = decode_review(body, purpose)
    return asked if isinstance(asked, PolicyReview) else review_policy(asked)


def decode_review(body: bytes, purpose: Purpose = Purpose.SERVE) -> DocumentReview | PolicyReview:
    """Return the document to review, or the response if there is none; fast, without parsing the document.

    An update that does not change the document is always admitted: a bad document, stored while the webhook was down,
    must not block changes to the ConfigMap's labels.
    """
    try:
        return _decode_review(body, purpose)
    except UnreadableReviewError:
        return _decode_review(make_readable(body), purpose)


def _decode_review(body: bytes, purpose: Purpose) -> DocumentReview | PolicyReview:
    request = decode_request(body)
    user = request.user_info.username
    is_ours = request.resource.resource == "configmaps" and request.namespace == NAMESPACE
    if (
        not is_ours
        or not (request.name in {NAME, OVERRIDES} or request.name.startswith(PART_PREFIX))
        or request.sub_resource
        or request.operation not in {"CREATE", "UPDATE"}
    ):
        return PolicyReview(respond(request.uid, ALLOWED), user, judged=False)
    new = decode_object(request.object, _config_map, "object")
    if new is None:
        raise BadReviewError("AdmissionReview.request.object is missing: CREATE and UPDATE of configmaps need it")
    old = decode_object(request.old_object, _config_map, "oldObject")
    if old is not None and (old.data, old.binary_data) == (new.data, new.binary_data):
        return PolicyReview(respond(request.uid, ALLOWED), user, judged=False)
    part = request.name.removeprefix(PART_PREFIX) if request.name.startswith(PART_PREFIX) else ""
    return DocumentReview(request.uid, user, new, old, purpose, request.name == OVERRIDES, part)


def review_policy(asked: DocumentReview) -> PolicyReview:
    """Review the document itself, which takes time in proportion to its size."""
    if asked.part:
        return _review_part(asked)
    try:
        raw = read_document(asked.new)
        loaded = load(assemble(raw, asked.parts, asked.purpose).document if asked.parts else raw, asked.purpose)
    except NoDocumentError as error:
        errors: tuple[str, ...] = (str(error),)
    except DocumentError as error:
        errors = tuple(f"{KEY}:{problem}" for problem in error.problems)
    else:
        policy, before = loaded.policy.policy, _load_former(asked)
        warnings = [
            *_warn_of_webhooks(before, policy),
            *_warn_of_counters(before, policy),
            *(f"{KEY}:{warning}" for warning in loaded.warnings),
        ]
        return PolicyReview(respond(asked.uid, ALLOWED, warnings), asked.user, judged=True)
    return refuse_policy(asked, errors)


def _review_part(asked: DocumentReview) -> PolicyReview:
    """Review a part with the root and the other parts."""
    name = f"part {asked.part}"
    try:
        check_label(asked.new)
        raw = read_document(asked.new)
    except NoDocumentError as error:
        return refuse_policy(asked, (str(error),), name)
    found = assemble(asked.root, {**asked.parts, asked.part: raw}, asked.purpose).problems.get(asked.part, ())
    if found:
        return refuse_policy(asked, tuple(f"{KEY}:{problem}" for problem in found), name)
    return PolicyReview(respond(asked.uid, ALLOWED), asked.user, judged=True, document=name)


def refuse_policy(asked: DocumentReview, errors: tuple[str, ...], document: str = "policy") -> PolicyReview:
    """Return the response that refuses a document for these errors."""
    status = ResponseStatus(400, "BadRequest", _format_message(errors, document))
    return PolicyReview(respond(asked.uid, status, has_lines=True), asked.user, judged=True, errors=errors)


def _load_former(asked: DocumentReview) -> Policy | None:
    """Return the stored policy; None if it is invalid, as it was then never in force."""
    try:
        return load_unproved(read_document(asked.old), asked.purpose).policy if asked.old is not None else None
    except (NoDocumentError, DocumentError):
        return None


def _warn_of_webhooks(before: Policy | None, policy: Policy) -> Iterator[str]:
    """Yield a warning if the webhook configurations must be applied again, which nothing else reports."""
    try:
        wanted = render_configurations(policy, _ANY)
    except TooManyEntriesError as error:
        yield f"{error}: {error.remedy}"
        return
    if before is not None and render_configurations(before, _ANY) != wanted:
        yield "match, failureMode or exemptions changed: the leader follows, or else apply `podgate policy webhooks`"


def _warn_of_counters(before: Policy | None, policy: Policy) -> Iterator[str]:
    """Yield warnings about limits that start empty after this change."""
    if before is None:
        return
    lines = tuple(find_resets(before, policy))
    yield from lines[:_FRESH_MAX]
    if len(lines) > _FRESH_MAX:
        yield f"and {len(lines) - _FRESH_MAX} more limits start empty"


def _format_message(errors: tuple[str, ...], document: str) -> str:
    noun = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    head = f"PolicyInvalid: the {document} has {noun}, the one in force stays:"
    return "\n".join([head, *shorten(errors, "see podgate policy lint")])


def shorten(errors: tuple[str, ...], remedy: str) -> list[str]:
    """Return the errors that fit into a response, and the number of the others."""
    more = [f"and {len(errors) - _LINES_MAX} more: {remedy}"] if len(errors) > _LINES_MAX else []
    return [*errors[:_LINES_MAX], *more]
