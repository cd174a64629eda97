"""A root document with two parts, and texts of parts."""

from webhook.core.document import Purpose, load

ROOT = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults:
  quota: {windows: [{window: 1m, hard: {pods: 10}}]}
pools: [{name: shared, windows: [{window: 1m, hard: {pods: 100}}]}]
services:
- {name: core, match: {namespaces: [core]}}
parts:
- {name: a, namespaces: ["a-*"]}
- {name: b, namespaces: [b, b-prod], pools: [shared]}
"""
SERVICE = "{name: %s, match: {namespaces: [%s]}}"


def part(name: str, namespace: str) -> str:
    """Return a part with one service."""
    return f"apiVersion: podgate.io/v1alpha1\nkind: PolicyPart\nservices:\n- {SERVICE % (name, namespace)}\n"


def read_names(document: bytes) -> list[str]:
    """Return the names of a document's services."""
    return [service.name for service in load(document, Purpose.REVIEW).policy.policy.services]
