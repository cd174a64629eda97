"""Explanation of the webhook configurations as text: for each webhook, the calls for new Pods."""

from collections.abc import Iterable
from typing import Any

from webhook.commands.pages.table import format_table
from webhook.core.plain_text import escape_document

_HEADINGS = ("  SERVICE", "NEW PODS", "REASON")
_CALLS = {"Made": "called", "LeftOut": "left out"}


def format_explanation(document: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    document = escape_document(document)
    yield f"policy {document['policyHash']}"
    for webhook in document["webhooks"]:
        rows = [
            (f"  {call['service'] or '(none)'}", _CALLS[call["call"]], call["reason"]) for call in webhook["newPods"]
        ]
        yield from ("", f"{webhook['name']}: {_format_namespaces(webhook['namespaces'])}")
        yield from format_table([_HEADINGS, *rows])


def _format_namespaces(found: dict[str, Any]) -> str:
    texts = [f"namespaces {', '.join(found['names'])}" if found["names"] else "all namespaces"]
    if found["except"]:
        texts.append(f"except {', '.join(found['except'])}")
    if found["labels"]:
        texts.append(f"with {', '.join(map(_format_requirement, found['labels']))}")
    return " ".join(texts)


def _format_requirement(requirement: dict[str, Any]) -> str:
    values = f" ({', '.join(requirement['values'])})" if requirement.get("values") else ""
    return f"{requirement['key']} {requirement['operator']}{values}"
