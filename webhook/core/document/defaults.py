"""Merge of `defaults` under every service (RFC 7386); values keep their line and column in the document."""

from dataclasses import replace

from webhook.core.document.yaml.nodes import MOST_NODES, Node
from webhook.core.document.yaml.problems import DocumentError

NO_DEFAULT = ("name", "match", "pool")
"""Fields that identify a service, which `defaults` cannot set."""

ATOMIC = frozenset({"affinity", "hard", "podSelector", "namespaceSelector", "labelSelector"})
"""Fields replaced as a whole: a merged selector would mean something else."""


def with_defaults(document: Node) -> Node:
    """Return the document with defaults merged into every service. Non-mappings are left to the schema."""
    fields = document.value
    if not isinstance(fields, dict) or "services" not in fields:
        return document
    services, defaults = fields["services"], fields.get("defaults")
    if not isinstance(services.value, list) or defaults is None or not isinstance(defaults.value, dict):
        return document
    kept = {key: node for key, node in defaults.value.items() if key not in NO_DEFAULT and node.value is not None}
    merged = [_merged(kept, service) for service in services.value]
    size = sum(service.size for service in merged)
    if size > MOST_NODES:
        reason = f"more than {MOST_NODES} values once `defaults` is under every service"
        raise DocumentError([services.problem_at_key(reason, "split the policy, or shorten `defaults`")])
    return replace(document, value={**fields, "services": replace(services, value=merged)})


def _merged(base: dict[str, Node], patch: Node) -> Node:
    """Return `base` patched. A null that removes nothing stays, so that the schema rejects it."""
    if not isinstance(patch.value, dict):
        return patch
    result = dict(base)
    for key, node in patch.value.items():
        below = base.get(key)
        if below is not None and node.value is None:
            del result[key]
        elif below is not None and isinstance(below.value, dict) and key not in ATOMIC:
            result[key] = _merged(below.value, node)
        else:
            result[key] = node
    return replace(patch, value=result, size=1 + sum(node.size for node in result.values()))
