"""Reads the labels of Namespaces that a user has in a file."""

from pathlib import Path
from typing import Any

from webhook.cli.files import documents
from webhook.cli.manifests import mapping
from webhook.errors import UserError


def namespace_labels(path: Path | None) -> dict[str, dict[str, str]]:
    """Return labels by Namespace: from Namespace objects (`kubectl get namespaces -o yaml`), or a plain mapping."""
    labels: dict[str, dict[str, str]] = {}
    for document in documents(path) if path is not None else []:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise UserError(f"{path}: not a mapping", _NAMESPACES_WANTED)
        if not isinstance(document.get("kind"), str):
            labels |= {name: _labels(found, path, name) for name, found in document.items()}
            continue
        items = (document.get("items") or []) if document["kind"].endswith("List") else [document]
        if not isinstance(items, list):
            raise UserError(f"{path}: items: {items!r}: not a list", _NAMESPACES_WANTED)
        for item in items:
            name, found = _namespace(item, str(path))
            labels[name] = _labels(found, path, name)
    return labels


_NAMESPACES_WANTED = "give Namespace objects (kubectl get namespaces -o yaml), or name: {label: value}"


def _namespace(item: Any, where: str) -> tuple[str, Any]:
    metadata = mapping(item, ("metadata",), where)
    if item.get("kind", "Namespace") != "Namespace":
        raise UserError(f"{where}: {item['kind']} {metadata.get('name')}: not a Namespace", _NAMESPACES_WANTED)
    if not isinstance(metadata.get("name"), str):
        raise UserError(f"{where}: a Namespace without metadata.name", _NAMESPACES_WANTED)
    return metadata["name"], metadata.get("labels")


def _labels(found: Any, path: Path | None, name: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{path}: {name}: labels: {found!r}: not a mapping", _NAMESPACES_WANTED)
    for key, value in found.items():
        if not isinstance(value, str):
            raise UserError(f"{path}: {name}: {key}: {value!r}: a label's value is a string", 'quote it, as in "true"')
    return found
