"""Pods that were read from a cluster: who made them there, and what a review of one can tell."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.kubernetes.pod_templates import WORKLOAD_KINDS
from webhook.support import sanitize

_MAKERS = {source.kind: source for source in WORKLOAD_KINDS if not source.maker}


class Exported(NamedTuple):
    """Who asked for a Pod when it was created, "" where nobody can tell, and what to say about that."""

    user: str
    hint: str


def exported(pod: Mapping[str, Any]) -> Exported | None:
    """Return how a Pod came to be that carries what only a cluster writes; None of one that somebody wrote."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    if not (metadata.get("uid") or metadata.get("managedFields") or pod.get("status")):
        return None
    node = spec.get("nodeName")
    if MIRROR_ANNOTATION in _mapping(metadata.get("annotations")) and isinstance(node, str) and node:
        shown = sanitize.printable(node)
        told = f"a mirror Pod, which the kubelet of node {shown} makes of a file: judged as asked for by the kubelet"
        return Exported(f"system:node:{node}", told)
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        source = _MAKERS.get(str(_mapping(owner).get("kind")))
        if source is not None and owner.get("controller") is True:
            name, namespace = (sanitize.printable(str(one)) for one in (owner.get("name"), metadata.get("namespace")))
            return Exported(
                source.controller,
                f"read from a cluster, made by {source.kind} {name}: judged as asked for by its controller."
                f" Review what it is made from: kubectl -n {namespace} get {source.shown} {name} -o yaml"
                " | podgate review -",
            )
    return Exported("", "read from a cluster: judged as if it were created anew")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
