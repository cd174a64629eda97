"""Status of a controller as text: leadership, policy, store, watches and certificates."""

from collections.abc import Iterable
from typing import Any

import click

from webhook.core.plain_text import printable_document
from webhook.offline.output.status_page import queues, webhooks


def controller_page(document: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page. Fields that an older controller lacks are left out."""
    document = printable_document(document)
    leadership = "leads" if document["leads"] else f"stands by: {document['waitsFor']}"
    yield f"podgate {document['version']}, controller: {leadership}"
    for reason in document.get("notReady", ()):
        yield _bad(f"not ready: {reason}")
    policy, store = document["policy"], document["store"]
    yield f"policy  {policy['hash'] or 'none'} from {policy['source']}"
    yield f"store   {store['kind']}: {_bad(store['error']) if store['error'] else 'ok'}"
    for error in policy.get("errors", ()):
        yield _bad(f"policy refused: {error}")
    for resource, error in document["watches"].items():
        yield f"watch   {resource}: {_bad(error) if error else 'ok'}"
    yield from webhooks(document.get("webhooks"))
    yield from queues(document.get("queues"))
    certificates = document["certificates"]
    if certificates is not None:
        yield f"certificates  kept by {certificates['keptBy']}"
        for secret, end in certificates["secrets"].items():
            yield f"certificate {secret}: until {end}"
        for error in certificates["errors"]:
            yield _bad(f"certificates: {error}")
    yield "services, quotas and breakers are shown by podgate serve: give --server its plain port"


def _bad(text: str) -> str:
    return click.style(text, fg="red")
