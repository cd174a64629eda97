"""Reads what users have in files: Pods, workloads, Lists and AdmissionReviews, as YAML or JSON."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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
USER = "kubernetes-admin"


@dataclass(frozen=True, slots=True)
class Subject:
    """One object of a file and the Pod that it makes; `review` holds an AdmissionReview as it came."""

    name: str
    pod: dict[str, Any]
    namespace: str
    user: str = USER
    review: dict[str, Any] | None = None


def read(path: Path) -> str:
    """Return a file's text, `-` being standard input."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}", "give a readable file") from None


def documents(path: Path) -> list[Any]:
    """Return the YAML or JSON documents of a file; empty ones are left out."""
    try:
        return [document for document in yaml.safe_load_all(read(path)) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None


def subjects(path: Path) -> Iterator[Subject]:
    """Return each object of a file as what would reach the webhook; UserError names an object that makes no Pod."""
    found = [subject for document in documents(path) for subject in _subjects(document, str(path))]
    if not found:
        raise UserError(f"{path}: no object in it", "give a Pod, a workload, a List or an AdmissionReview")
    return iter(found)


def _subjects(document: Any, where: str) -> Iterator[Subject]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise UserError(f"{where}: an object without a kind", "give Kubernetes objects")
    kind = document["kind"]
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _subjects(item, where)
        return
    if kind == "AdmissionReview":
        request = document.get("request")
        pod = request.get("object") if isinstance(request, dict) else None
        name = f"AdmissionReview {request.get('uid')}" if isinstance(request, dict) else "AdmissionReview"
        namespace = str(request.get("namespace", "")) if isinstance(request, dict) else ""
        yield Subject(name, pod if isinstance(pod, dict) else {}, namespace, review=document)
        return
    metadata = _mapping(document, ("metadata",), where)
    namespace = str(metadata.get("namespace") or "default")
    name = f"{kind} {namespace}/{metadata.get('name') or metadata.get('generateName', '')}"
    if kind == "Pod":
        yield Subject(name, document, namespace)
    elif kind in _TEMPLATES:
        path, controller = _TEMPLATES[kind]
        template = _mapping(document, path, f"{where}: {name}")
        yield Subject(name, _pod_of(template, metadata), namespace, _CONTROLLERS + controller)
    else:
        known = ", ".join(["Pod", *_TEMPLATES, "List", "AdmissionReview"])
        raise UserError(f"{where}: {name}: makes no Pods", f"give one of {known}")


def _mapping(document: Mapping[str, Any], path: tuple[str, ...], where: str) -> Mapping[str, Any]:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: {'.'.join(path)} is missing or no mapping", "give a whole object")
    return found


def _pod_of(template: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Pod that a controller would make from a template."""
    metadata = dict(template.get("metadata") or {})
    metadata["generateName"] = f"{owner.get('name', 'workload')}-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template.get("spec") or {})}


def namespace_labels(path: Path | None) -> dict[str, dict[str, str]]:
    """Return labels by Namespace: from Namespace objects (`kubectl get namespaces -o yaml`), or a plain mapping."""
    labels: dict[str, dict[str, str]] = {}
    for document in documents(path) if path is not None else []:
        if not isinstance(document, dict):
            raise UserError(f"{path}: not a mapping", "give Namespace objects, or name: {label: value}")
        if "kind" not in document:
            labels |= {str(name): _labels(found, path, name) for name, found in document.items()}
            continue
        for item in document.get("items", [document]):
            metadata = _mapping(item, ("metadata",), str(path))
            labels[str(metadata.get("name"))] = _labels(metadata.get("labels") or {}, path, metadata.get("name"))
    return labels


def _labels(found: Any, path: Path | None, name: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UserError(f"{path}: {name}: labels must map strings to strings", 'quote values such as "true"')
    return found
