"""Pods exported from a cluster: the user that created them, and hints for their review."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.plain_text import escape_line

_MAKERS = {source.kind: source for source in WORKLOAD_KINDS if not source.maker}


class PodOrigin(NamedTuple):
    """The user that created a Pod, "" if unknown, and a hint for the reader."""

    user: str
    hint: str


def find_origin(pod: Mapping[str, Any]) -> PodOrigin | None:
    """Return the origin of a Pod with fields that only a cluster writes; None for a hand-written one."""
    metadata, spec = _read_mapping(pod.get("metadata")), _read_mapping(pod.get("spec"))
    if not (metadata.get("uid") or metadata.get("managedFields") or pod.get("status")):
        return None
    node = spec.get("nodeName")
    if MIRROR_ANNOTATION in _read_mapping(metadata.get("annotations")) and isinstance(node, str) and node:
        shown = escape_line(node)
        hint = f"a mirror Pod, made by the kubelet of node {shown} from a file: reviewed as requested by the kubelet"
        return PodOrigin(f"system:node:{node}", hint)
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        source = _MAKERS.get(str(_read_mapping(owner).get("kind")))
        if source is not None and owner.get("controller") is True:
            name, namespace = (escape_line(str(text)) for text in (owner.get("name"), metadata.get("namespace")))
            return PodOrigin(
                source.controller,
                f"read from a cluster, made by {source.kind} {name}: reviewed as requested by its controller."
                f" Review what it is made from: kubectl -n {namespace} get {source.shown} {name} -o yaml"
                " | podgate review -",
            )
    return PodOrigin("", "read from a cluster: reviewed as a new Pod")


def _read_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
