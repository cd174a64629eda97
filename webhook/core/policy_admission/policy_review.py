"""The policy before it is stored: an AdmissionReview of its ConfigMap in, an answer out, all errors at once."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from webhook.core.configurations import ClientConfig, TooManyEntriesError, configurations
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.configmap import KEY, NAME, NAMESPACE, OVERRIDES, ConfigMap, NoDocumentError, document_of
from webhook.core.document.loading import load_unproved
from webhook.core.kubernetes.admission_request import BadReviewError, object_of, request_of
from webhook.core.kubernetes.admission_response import ALLOWED, ResponseStatus, respond
from webhook.core.policy.model import Policy
from webhook.core.quota.counter_resets import starts_empty

_LINES_MAX = 100
_FRESH_MAX = 20
"""Warnings about counters: a client shows all that it gets, and the log of the server has them all."""
_ANY = ClientConfig("https://podgate", b"")
_config_map = msgspec.json.Decoder(ConfigMap)


class PolicyReview(Struct, frozen=True):
    """What goes back, and what was found. `judged` is False where the request was none of ours."""

    body: bytes
    user: str
    judged: bool
    errors: tuple[str, ...] = ()
    document: str = "policy"
    """What was judged."""


class DocumentReview(Struct, frozen=True):
    """A document that has to be judged, as its AdmissionReview brings it."""

    uid: str
    user: str
    new: ConfigMap
    old: ConfigMap | None
    purpose: Purpose = Purpose.SERVE
    """What kind of server will act on it."""
    is_of_overrides: bool = False


def judge(body: bytes, purpose: Purpose = Purpose.SERVE) -> PolicyReview:
    """Judge a document as a server in this cluster will; BadReviewError where the body is no AdmissionReview."""
    asked = decode_review(body, purpose)
    return asked if isinstance(asked, PolicyReview) else review_policy(asked)


def decode_review(body: bytes, purpose: Purpose = Purpose.SERVE) -> DocumentReview | PolicyReview:
    """Return what there is to judge, or the answer where there is nothing; takes no longer than reading the body.

    An update that leaves the document alone is admitted whatever stands in it: a bad one that came in while nobody
    looked must not keep anybody from labelling the object that carries it.
    """
    request = request_of(body)
    user = request.user_info.username
    is_ours = request.resource.resource == "configmaps" and request.namespace == NAMESPACE
    if (
        not is_ours
        or request.name not in {NAME, OVERRIDES}
        or request.sub_resource
        or request.operation not in {"CREATE", "UPDATE"}
    ):
        return PolicyReview(respond(request.uid, ALLOWED), user, judged=False)
    new = object_of(request.object, _config_map, "object")
    if new is None:
        raise BadReviewError("AdmissionReview.request.object is missing: CREATE and UPDATE of configmaps need it")
    old = object_of(request.old_object, _config_map, "oldObject")
    if old is not None and (old.data, old.binary_data) == (new.data, new.binary_data):
        return PolicyReview(respond(request.uid, ALLOWED), user, judged=False)
    return DocumentReview(request.uid, user, new, old, purpose, request.name == OVERRIDES)


def review_policy(asked: DocumentReview) -> PolicyReview:
    """Judge the document itself: that takes as long as the document is large."""
    try:
        loaded = load(document_of(asked.new), asked.purpose)
    except NoDocumentError as error:
        errors: tuple[str, ...] = (str(error),)
    except DocumentError as error:
        errors = tuple(f"{KEY}:{problem}" for problem in error.problems)
    else:
        policy, before = loaded.policy.policy, _former(asked)
        warnings = [
            *_about_webhooks(before, policy),
            *_about_counters(before, policy),
            *(f"{KEY}:{warning}" for warning in loaded.warnings),
        ]
        return PolicyReview(respond(asked.uid, ALLOWED, warnings), asked.user, judged=True)
    status = ResponseStatus(400, "BadRequest", _message(errors))
    return PolicyReview(respond(asked.uid, status), asked.user, judged=True, errors=errors)


def _former(asked: DocumentReview) -> Policy | None:
    """Return the policy that was stored, None where it was none: a bad one was never in force."""
    try:
        return load_unproved(document_of(asked.old), asked.purpose).policy if asked.old is not None else None
    except (NoDocumentError, DocumentError):
        return None


def _about_webhooks(before: Policy | None, policy: Policy) -> Iterator[str]:
    """Yield a word where the API server would go on asking by the former policy: nothing else would tell."""
    try:
        wanted = configurations(policy, _ANY)
    except TooManyEntriesError as error:
        yield f"{error}: {error.remedy}"
        return
    if before is not None and configurations(before, _ANY) != wanted:
        yield "match, failureMode or exemptions changed: apply `podgate policy webhooks` anew, or it acts in part"


def _about_counters(before: Policy | None, policy: Policy) -> Iterator[str]:
    """Yield what this change makes count from nothing."""
    if before is None:
        return
    lines = tuple(starts_empty(before, policy))
    yield from lines[:_FRESH_MAX]
    if len(lines) > _FRESH_MAX:
        yield f"and {len(lines) - _FRESH_MAX} more limits start empty"


def _message(errors: tuple[str, ...]) -> str:
    noun = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    head = f"PolicyInvalid: the policy has {noun}, the one in force stays:"
    return "\n".join([head, *shortened(errors, "see podgate policy lint")])


def shortened(errors: tuple[str, ...], remedy: str) -> list[str]:
    """Return as many as an answer has room for."""
    more = [f"and {len(errors) - _LINES_MAX} more: {remedy}"] if len(errors) > _LINES_MAX else []
    return [*errors[:_LINES_MAX], *more]
