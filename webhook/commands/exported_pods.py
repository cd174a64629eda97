"""Pods exported from a cluster: the user that created them, and hints for their review."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.support import sanitize

_MAKERS = {source.kind: source for source in WORKLOAD_KINDS if not source.maker}


class Exported(NamedTuple):
    """The user that created a Pod, "" if unknown, and a hint for the reader."""

    user: str
    hint: str


def exported(pod: Mapping[str, Any]) -> Exported | None:
    """Return the origin of a Pod with fields that only a cluster writes; None for a hand-written one."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    if not (metadata.get("uid") or metadata.get("managedFields") or pod.get("status")):
        return None
    node = spec.get("nodeName")
    if MIRROR_ANNOTATION in _mapping(metadata.get("annotations")) and isinstance(node, str) and node:
        shown = sanitize.printable(node)
        hint = f"a mirror Pod, made by the kubelet of node {shown} from a file: reviewed as requested by the kubelet"
        return Exported(f"system:node:{node}", hint)
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        source = _MAKERS.get(str(_mapping(owner).get("kind")))
        if source is not None and owner.get("controller") is True:
            name, namespace = (sanitize.printable(str(text)) for text in (owner.get("name"), metadata.get("namespace")))
            return Exported(
                source.controller,
                f"read from a cluster, made by {source.kind} {name}: reviewed as requested by its controller."
                f" Review what it is made from: kubectl -n {namespace} get {source.shown} {name} -o yaml"
                " | podgate review -",
            )
    return Exported("", "read from a cluster: reviewed as a new Pod")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
