"""Reads what users have in files: Pods, workloads, Lists and AdmissionReviews, as YAML or JSON."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
import yaml

from webhook.cli.apiserver import USER
from webhook.errors import UserError

_CONTROLLERS = "system:serviceaccount:kube-system:"
_TEMPLATES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Deployment": (("spec", "template"), "replicaset-controller"),
    "ReplicaSet": (("spec", "template"), "replicaset-controller"),
    "ReplicationController": (("spec", "template"), "replication-controller"),
    "StatefulSet": (("spec", "template"), "statefulset-controller"),
    "DaemonSet": (("spec", "template"), "daemon-set-controller"),
    "Job": (("spec", "template"), "job-controller"),
    "CronJob": (("spec", "jobTemplate", "spec", "template"), "job-controller"),
}
_LARGEST_VALUES = 1_000_000
_KNOWN = ", ".join(["Pod", *_TEMPLATES, "List", "AdmissionReview"])


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: a timestamp is a string, as it is in the JSON that an API server gets."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Subject:
    """One object of a file and the Pod that it makes; `review` holds an AdmissionReview as it came."""

    name: str
    pod: dict[str, Any]
    namespace: str
    user: str = USER
    review: dict[str, Any] | None = None
    makes_none: bool = False


def standard_input() -> BinaryIO:
    """Return standard input as bytes: what it is encoded in is the file's affair, not the terminal's."""
    if sys.stdin is None:
        raise UserError("-: standard input is closed", "give a file, or pipe something in")
    return sys.stdin.buffer


def read(path: Path) -> str:
    """Return a file's text, `-` being standard input."""
    try:
        raw = standard_input().read() if str(path) == "-" else path.read_bytes()
        return raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}", "give a readable file") from None


def documents(path: Path) -> list[Any]:
    """Return the YAML or JSON documents of a file, as the JSON that would travel; empty ones are left out."""
    text = read(path)
    try:
        found = [document for document in yaml.load_all(text, _Loader) if document is not None]
        _refuse_expansion(found)
        return [msgspec.json.decode(msgspec.json.encode(document)) for document in found]
    except (yaml.YAMLError, msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None


def _refuse_expansion(documents: list[Any]) -> None:
    """Refuse aliases that would unfold a short file into more than any cluster holds; ValueError."""
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = _LARGEST_VALUES  # what an alias to itself finds here
            inner = (*node.keys(), *node.values()) if isinstance(node, dict) else node
            sizes[id(node)] = 1 + sum(size(one) for one in inner)
        return sizes[id(node)]

    if sum(size(document) for document in documents) > _LARGEST_VALUES:
        raise ValueError(f"unfolds to more than {_LARGEST_VALUES} values: use fewer aliases or several files")


def subjects(path: Path, namespace: str) -> Iterator[Subject]:
    """Return each object of a file as what would reach the webhook; `namespace` is for those that name none.

    What makes no Pods is named on stderr and left out; UserError where nothing else is in the file.
    """
    found = [subject for document in documents(path) for subject in _subjects(document, str(path), namespace)]
    idle = [subject.name for subject in found if subject.makes_none]
    if not found:
        raise UserError(f"{path}: no object in it", f"give one of {_KNOWN}")
    if len(idle) == len(found):
        raise UserError(f"{path}: {', '.join(idle)}: makes no Pods", f"give one of {_KNOWN}")
    for name in idle:
        click.echo(f"note: {path}: {name}: makes no Pods, left out", err=True)
    return iter([subject for subject in found if not subject.makes_none])


def _subjects(document: Any, where: str, default_namespace: str) -> Iterator[Subject]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise UserError(f"{where}: an object without a kind", f"give one of {_KNOWN}")
    kind = document["kind"]
    if kind.endswith("List"):
        items = document.get("items") or []
        if not isinstance(items, list):
            raise UserError(f"{where}: {kind}: items: {items!r}: not a list", "give a list of objects")
        for item in items:
            # `kubectl get -o json` leaves the kind of a typed list's items out.
            typed = isinstance(item, dict) and "kind" not in item and kind != "List"
            yield from _subjects(
                {"kind": kind.removesuffix("List"), **item} if typed else item, where, default_namespace
            )
        return
    if kind == "AdmissionReview":
        request = document.get("request")
        pod = request.get("object") if isinstance(request, dict) else None
        name = f"AdmissionReview {request.get('uid')}" if isinstance(request, dict) else "AdmissionReview"
        namespace = str(request.get("namespace", "")) if isinstance(request, dict) else ""
        yield Subject(name, pod if isinstance(pod, dict) else {}, namespace, review=document)
        return
    makes_none = kind != "Pod" and kind not in _TEMPLATES
    metadata = (document.get("metadata") or {}) if makes_none else _mapping(document, ("metadata",), f"{where}: {kind}")
    if not isinstance(metadata, dict):
        metadata = {}
    namespace = str(metadata.get("namespace") or default_namespace)
    name = f"{kind} {namespace}/{metadata.get('name') or metadata.get('generateName') or ''}"
    if makes_none:
        yield Subject(name, {}, namespace, makes_none=True)
    elif kind == "Pod":
        yield Subject(name, document, namespace)
    else:
        path, controller = _TEMPLATES[kind]
        template = _mapping(document, path, f"{where}: {name}")
        yield Subject(name, _pod_of(template, metadata, f"{where}: {name}"), namespace, _CONTROLLERS + controller)


def _mapping(document: Mapping[str, Any], path: tuple[str, ...], where: str) -> Mapping[str, Any]:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: {'.'.join(path)} is missing or no mapping", "give a whole object")
    return found


def _pod_of(template: Mapping[str, Any], owner: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the Pod that a controller would make from a template."""
    given = {} if template.get("metadata") is None else _mapping(template, ("metadata",), f"{where}: template")
    metadata = {**given, "generateName": f"{owner.get('name') or 'workload'}-"}
    spec = _mapping(template, ("spec",), f"{where}: template")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def namespace_labels(path: Path | None) -> dict[str, dict[str, str]]:
    """Return labels by Namespace: from Namespace objects (`kubectl get namespaces -o yaml`), or a plain mapping."""
    labels: dict[str, dict[str, str]] = {}
    for document in documents(path) if path is not None else []:
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
    metadata = _mapping(item, ("metadata",), where)
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
