"""Ways to run Podgate in a cluster: the kustomization of each, and the values that a user chooses in it."""

from collections.abc import Iterator
from copy import deepcopy

from webhook.core.installation.objects import Json

MEMORY, REDIS, REDUCED = "memory", "redis", "reduced"
"""Modes: counters in memory, in Redis, or in memory with callers that are not authenticated."""
FILES, OWN, CERT_MANAGER = CERTIFICATES = ("files", "own", "cert-manager")
"""Managers of the certificates: the user, Podgate's leader, or cert-manager."""
_FOLDERS = {
    (MEMORY, FILES): ".",
    (MEMORY, OWN): "overlays/own-certificates",
    (MEMORY, CERT_MANAGER): "overlays/cert-manager",
    (REDIS, FILES): "overlays/redis",
    (REDIS, OWN): "overlays/own-certificates-redis",
    (REDIS, CERT_MANAGER): "overlays/cert-manager-redis",
    (REDUCED, FILES): "overlays/reduced",
}
_SERVER, _STORE, _TOKEN = "podgate", "--store=", "--token="
_WORKLOADS = ("Deployment", "DaemonSet")
_IDENTITIES, _USUAL_ISSUER = "identities.yaml", "https://kubernetes.default.svc.cluster.local"
"""The issuer of most clusters' tokens, which the shipped identities have."""


def folder(mode: str, certificates: str) -> str | None:
    """Return the kustomization of a way, None if it does not exist."""
    return _FOLDERS.get((mode, certificates))


def chosen(
    documents: list[Json], *, store: str | None = None, image: str | None = None, replicas: int | None = None
) -> list[Json]:
    """Return the objects with the user's store, image and number of servers; None leaves the manifests' value."""
    found = deepcopy(documents)
    for one in found:
        if replicas is not None and (one["kind"], one["metadata"]["name"]) == ("Deployment", _SERVER):
            one["spec"]["replicas"] = replicas
        for container in _containers(one):
            if image is not None:
                container["image"] = image
            if store is not None:
                _set(container, _STORE, store)
    return found


def with_tokens_of(documents: list[Json], issuer: str) -> list[Json]:
    """Return the objects of the node agent with the issuer of the tokens: `own` or `cluster`."""
    found = deepcopy(documents)
    for container in (container for one in found for container in _containers(one)):
        _set(container, _TOKEN, issuer)
    return found


def with_issuer(documents: list[Json], issuer: str) -> list[Json]:
    """Return the objects with the issuer of the cluster's tokens in the identities."""
    found = deepcopy(documents)
    for one in found:
        if one["kind"] == "ConfigMap" and _IDENTITIES in one["data"]:
            one["data"][_IDENTITIES] = one["data"][_IDENTITIES].replace(f"{_USUAL_ISSUER}\n", f"{issuer}\n")
    return found


def _containers(document: Json) -> Iterator[Json]:
    if document["kind"] in _WORKLOADS:
        yield from document["spec"]["template"]["spec"]["containers"]


def _set(container: Json, flag: str, value: str) -> None:
    container["args"] = [f"{flag}{value}" if one.startswith(flag) else one for one in container.get("args", [])]
