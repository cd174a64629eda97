"""Labels of Namespaces: from --namespaces, and from Namespace objects under review."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from webhook.commands.manifests import Subject, read_mapping
from webhook.core.kubernetes.zero_values import fill_zero_values
from webhook.core.plain_text import escape_line
from webhook.core.policy.matching import NAME_LABEL
from webhook.errors import UserError
from webhook.support.input_files import read_documents

Labels = dict[str, dict[str, str]]
"""By namespace."""


def read_namespace_labels(path: Path | None) -> Labels:
    """Return labels by Namespace: from Namespace objects (`kubectl get namespaces -o yaml`), or a plain mapping."""
    labels: Labels = {}
    for document in read_documents(path) if path is not None else []:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise UserError(f"{path}: not a mapping", _NAMESPACES_WANTED)
        if not isinstance(document.get("kind"), str):
            if not any(not isinstance(found, str) for found in document.values()):
                raise UserError(f"{path}: holds neither Namespaces nor their labels", _NAMESPACES_WANTED)
            labels |= {name: _parse_labels(found, path, name) for name, found in document.items()}
            continue
        items = (document.get("items") or []) if document["kind"].endswith("List") else [document]
        if not isinstance(items, list):
            raise UserError(f"{path}: items: {_format_scalar(items)}: not a list", _NAMESPACES_WANTED)
        for item in items:
            name, found = _parse_namespace(item, str(path))
            labels[name] = _parse_labels(found, path, name)
    return labels


def merge_labels(given: Labels, found: Iterable[Subject | UserError], wrong: Callable[[UserError], None]) -> Labels:
    """Return the labels from --namespaces, and those of other Namespaces under review."""
    known = dict(given)
    for subject in found:
        if isinstance(subject, UserError) or not is_namespace(subject):
            continue
        name = subject.own_name
        try:
            labels = _parse_labels((subject.document.get("metadata") or {}).get("labels"), subject.where, name)
        except UserError as error:
            wrong(error)
            continue
        if _remove_name_label(known.setdefault(name, labels)) != _remove_name_label(labels):
            holds = "those of --namespaces are used" if name in given else "the first ones are used"
            note = f"note: {subject.where}: Namespace {name}: its labels differ from those read before: {holds}"
            click.echo(escape_line(note), err=True)
    return known


def is_namespace(subject: Subject) -> bool:
    """Return whether an object is a Kubernetes Namespace with a name."""
    return subject.kind == "Namespace" and bool(subject.own_name) and subject.document.get("apiVersion", "v1") == "v1"


def _remove_name_label(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels without the name label, which the API server sets."""
    return {key: value for key, value in labels.items() if key != NAME_LABEL}


_NAMESPACES_WANTED = "give Namespace objects (kubectl get namespaces -o yaml), or name: {label: value}"


def _parse_namespace(item: Any, where: str) -> tuple[str, Any]:
    metadata = read_mapping(item, ("metadata",), where)
    if item.get("kind", "Namespace") != "Namespace":
        raise UserError(f"{where}: {item['kind']} {metadata.get('name')}: not a Namespace", _NAMESPACES_WANTED)
    if not isinstance(metadata.get("name"), str):
        raise UserError(f"{where}: a Namespace without metadata.name", _NAMESPACES_WANTED)
    return metadata["name"], metadata.get("labels")


def _parse_labels(found: Any, path: object, name: Any) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{path}: {name}: labels: {_format_scalar(found)}: not a mapping", _NAMESPACES_WANTED)
    labels: dict[str, Any] = fill_zero_values(found, "labels")
    for key, value in labels.items():
        if not isinstance(value, str):
            reason = f"{key}: {_format_scalar(value)}: a label's value is a string"
            raise UserError(f"{path}: {name}: {reason}", 'quote it, as in "true"')
    return labels


def _format_scalar(value: Any) -> str:
    """Return an unquoted scalar as it was parsed; other values may be secrets from a wrong file."""
    return repr(value) if isinstance(value, bool | int | float | None) else "(not shown)"
