"""Admission of the overrides document: checked as a server loads it, and against the policy in force."""

from collections.abc import Iterator

from webhook.core.document import DocumentError
from webhook.core.document.configmap import OVERRIDES_KEY, ConfigMap, NoDocumentError, read_document
from webhook.core.kubernetes.admission_request import ALLOWED, ResponseStatus, respond
from webhook.core.overrides import Override, list_remarks
from webhook.core.overrides.loading import OverridesDocument, load
from webhook.core.policy.model import Policy
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview, shorten

NAME = "overrides"


def review_overrides(asked: DocumentReview, policy: Policy | None, now_us: int) -> PolicyReview:
    """Reject an invalid document, and new entries of another author or for services that the policy does not have.

    Existing entries may name services that were removed since: they must not block changes of other entries. Without
    a policy, service names are not checked.
    """
    errors: tuple[str, ...]
    former = _load_former(asked.old)
    try:
        document = load(_read_document(asked.new))
        problems = (*document.find_clashes(now_us), *document.find_misattributed(former, asked.user))
        errors = tuple(f"{OVERRIDES_KEY}:{problem}" for problem in problems)
    except NoDocumentError as error:
        errors = (str(error),)
    except DocumentError as error:
        errors = tuple(f"{OVERRIDES_KEY}:{problem}" for problem in error.problems)
    warnings: tuple[str, ...] = ()
    if not errors and policy is not None:
        services = {service.name for service in policy.services}
        new = [entry for entry in _list_live(document, now_us) if entry not in former]
        unknown = dict.fromkeys(entry.service for entry in new if entry.service not in services)
        known = ", ".join(sorted(services))
        errors = tuple(f"{OVERRIDES_KEY}: no service {name!r}: the policy has {known}" for name in unknown)
        warnings = tuple(
            f"{entry.service}: without effect: {idle}" for entry in new for idle in list_remarks(policy, entry)
        )
    if not errors:
        return PolicyReview(respond(asked.uid, ALLOWED, warnings), asked.user, judged=True, document=NAME)
    noun = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    head = f"OverridesInvalid: the overrides have {noun}, those in force stay:"
    status = ResponseStatus(400, "BadRequest", "\n".join([head, *shorten(errors, "see podgate override --list")]))
    return PolicyReview(
        respond(asked.uid, status, has_lines=True), asked.user, judged=True, errors=errors, document=NAME
    )


def _list_live(document: OverridesDocument, now_us: int) -> Iterator[Override]:
    for entries in document.list_live(now_us).values():
        yield from entries


def _load_former(old: ConfigMap | None) -> tuple[Override, ...]:
    """Return the stored entries; none if the stored document is invalid."""
    try:
        return () if old is None else load(_read_document(old)).entries
    except (NoDocumentError, DocumentError):
        return ()


def _read_document(config_map: ConfigMap) -> bytes:
    """Return the document; an empty ConfigMap has no overrides."""
    is_empty = not (config_map.data or config_map.binary_data)
    return b"" if is_empty else read_document(config_map, OVERRIDES_KEY)
