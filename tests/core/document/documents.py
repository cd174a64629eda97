"""Documents for the tests of this folder, from their relevant part."""

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.policy.model import Service

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
SERVICE = "services:\n- name: payment-api\n  match: {namespaces: [payments]}\n"


def build_document(stanzas: str) -> str:
    """Return a document whose one service has `stanzas`, indented by two spaces, from line 6 on."""
    return HEAD + SERVICE + stanzas


def list_problems(document: str, purpose: Purpose = Purpose.LINT) -> list[str]:
    """Return the problem lines of a document; none if it is valid."""
    try:
        load(document.encode(), purpose)
    except DocumentError as error:
        return [str(problem) for problem in error.problems]
    return []


def list_warnings(document: str) -> list[str]:
    return [str(warning) for warning in load(document.encode(), Purpose.LINT).warnings]


def load_only_service(document: str) -> Service:
    return load(document.encode(), Purpose.LINT).policy.policy.services[0]
