"""Merge of `defaults` under every service (RFC 7386); values keep their line and column in the document."""

from collections.abc import Iterator
from dataclasses import replace

from webhook.core.document.yaml.nodes import DOCUMENT_NODES_MAX, Node
from webhook.core.document.yaml.problems import DocumentError, Problem
from webhook.core.quota import canonicalize

NO_DEFAULT = ("name", "match", "pool", "guaranteed")
"""Fields that identify a service, which `defaults` cannot set."""

_IDENTITY = frozenset({"name", "match"})
"""Fields that every service writes as a whole."""

ATOMIC = frozenset({"podSelector", "namespaceSelector", "labelSelector", "to"})
"""LabelSelectors, which are replaced as a whole: a merged selector would mean something else."""

ATOMIC_IN_0_1 = ATOMIC | {"affinity", "hard"}
"""Fields that version 0.1.0 replaced as a whole."""

_LIMITING = (("quota", "standing", "hard"), ("placement", "affinity"))
"""Fields in which a default that still applies beside a service's own values is easily overlooked."""


def merge_defaults(document: Node, atomic: frozenset[str] = ATOMIC) -> Node:
    """Return the document with defaults merged into every service. Non-mappings are left to the schema."""
    fields = document.value
    if not isinstance(fields, dict) or "services" not in fields:
        return document
    services, defaults = fields["services"], fields.get("defaults")
    if not isinstance(services.value, list):
        return document
    base = defaults.value if defaults is not None and isinstance(defaults.value, dict) else {}
    kept = {key: node for key, node in base.items() if key not in NO_DEFAULT and node.value is not None}
    merged = [_merge(kept, service, atomic) for service in services.value]
    size = sum(service.size for service in merged)
    if size > DOCUMENT_NODES_MAX:
        reason = f"more than {DOCUMENT_NODES_MAX} values once `defaults` is under every service"
        raise DocumentError([services.build_key_problem(reason, "split the policy, or shorten `defaults`")])
    return replace(document, value={**fields, "services": replace(services, value=merged)})


def _merge(base: dict[str, Node], patch: Node, atomic: frozenset[str], field: str = "") -> Node:
    """Return `base` patched. A null without a default changes nothing; the schema reports a null in an atomic field."""
    if not isinstance(patch.value, dict) or (not base and not has_null(patch)):
        return patch
    result = dict(base)
    for key, node in patch.value.items():
        replaced = _find_same_key(base, key, field)
        below = base.get(replaced)
        if below is not None and (node.value is None or replaced != key):
            result.pop(replaced, None)  # removed if the service writes the resource under both names
        is_identity = not field and key in _IDENTITY
        if is_identity or (key in atomic and node.value is not None):
            result[key] = node
        elif node.value is not None:
            default = None if below is None else below.value
            result[key] = _merge(default if isinstance(default, dict) else {}, node, atomic, key)
    return replace(patch, value=result, size=1 + sum(node.size for node in result.values()))


def has_null(node: Node) -> bool:
    """Return whether a mapping or one below it has a null."""
    fields = node.value
    return isinstance(fields, dict) and any(inner.value is None or has_null(inner) for inner in fields.values())


def _find_same_key(base: dict[str, Node], key: str, field: str) -> str:
    """Return the key of the default that `key` replaces: in `hard`, `cpu` and `requests.cpu` are one resource."""
    if field != "hard" or key in base:
        return key
    return next((other for other in base if canonicalize(other) == canonicalize(key)), key)


def advise_on_merge(document: Node) -> Iterator[Problem]:
    """Warn of a service that replaces a part of a default limit or affinity, the rest of which still applies.

    Warn also of a null that removes nothing: it may stand for a forgotten value. `document`: valid, before the merge.
    """
    services = _find_node(document, ("services",))
    if services is not None and isinstance(services.value, list):
        for service in services.value:
            if has_null(service):
                yield from _check_idle_nulls(_find_node(document, ("defaults",)), service)
    for path in _LIMITING:
        default = _find_node(document, ("defaults", *path))
        if default is None or services is None or not isinstance(services.value, list):
            continue
        for service in services.value:
            own = _find_node(service, path)
            if own is not None:
                yield from _check_partial_replacement(default, own)


def _check_partial_replacement(default: Node, own: Node) -> Iterator[Problem]:
    base, patch = dict(_list_leaves(default, ())), dict(_list_leaves(own, ()))
    names = {path: ".".join(map(str, node.path[len(default.path) :])) for path, node in base.items()}
    replaced = [names[path] for path in base if path in patch and patch[path].value is not None]
    kept = [names[path] for path in base if not any(path[:length] in patch for length in range(len(path) + 1))]
    if replaced and kept:
        reason = f"replaces {', '.join(replaced)} of `defaults` in line {default.line}; {', '.join(kept)} still applies"
        yield own.build_key_problem(reason, f"keep it so, or remove that too with {kept[0]}: null")


def _check_idle_nulls(default: Node | None, own: Node, field: str = "") -> Iterator[Problem]:
    base = default.value if default is not None and isinstance(default.value, dict) else {}
    if not isinstance(own.value, dict):
        return
    for key, node in own.value.items():
        below = base.get(_find_same_key(base, key, field))
        if node.value is not None:
            yield from _check_idle_nulls(below, node, key)
        elif below is None:
            yield node.build_key_problem(
                "removes nothing: `defaults` has no such key", "write a value, or remove the key"
            )


def _find_node(node: Node, path: tuple[str, ...]) -> Node | None:
    """Return the node at a path of keys, None if it is absent."""
    for step in path:
        if not isinstance(node.value, dict) or step not in node.value:
            return None
        node = node.value[step]
    return node


def _list_leaves(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield the values that a merge replaces, with their paths; each resource with its full name."""
    if not isinstance(node.value, dict):
        yield path, node
        return
    for key, inner in node.value.items():
        yield from _list_leaves(inner, (*path, canonicalize(key)))
