"""Ways to run Podgate in a cluster: the kustomization of each, and the values that a user chooses in it."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from re import match

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
_SCHEDULER_CERTIFICATES = {
    (MEMORY, OWN): "components/scheduler-own-certificates",
    (REDIS, OWN): "components/scheduler-own-certificates-redis",
    (MEMORY, CERT_MANAGER): "components/scheduler-cert-manager",
    (REDIS, CERT_MANAGER): "components/scheduler-cert-manager",
}
SCHEDULER_IMAGE = "registry.k8s.io/kube-scheduler"
_SCHEDULER, _TEAM_LABELS = "podgate-scheduler", "podgate-team-labels"
_SERVER, _STORE, _TOKEN = "podgate", "--store=", "--token="
_WORKLOADS = ("Deployment", "DaemonSet")
_IDENTITIES, _USUAL_ISSUER = "identities.yaml", "https://kubernetes.default.svc.cluster.local"
"""The token issuer of most clusters, which the shipped identities name."""


def build_way(
    mode: str, certificates: str, *, has_scheduler: bool = False, has_team_labels: bool = False
) -> Json | None:
    """Return the kustomization of a way, at the root of the manifests; None if it does not exist."""
    folder = _FOLDERS.get((mode, certificates))
    if folder is None:
        return None
    own = _SCHEDULER_CERTIFICATES.get((mode, certificates))
    components = ["components/scheduler", *([own] if own is not None else [])] if has_scheduler else []
    components += ["components/team-labels"] if has_team_labels else []
    return {"resources": [folder], "components": components}


def apply_choices(
    documents: list[Json],
    *,
    store: str | None = None,
    image: str | None = None,
    replicas: int | None = None,
    scheduler_image: str | None = None,
) -> list[Json]:
    """Return the objects with the user's store, images and number of servers; None keeps the manifests' value."""
    found = deepcopy(documents)
    for document in found:
        name = document["metadata"]["name"]
        if replicas is not None and (document["kind"], name) == ("Deployment", _SERVER):
            document["spec"]["replicas"] = replicas
        for container in _list_containers(document):
            if name == _SCHEDULER:
                container["image"] = scheduler_image or container["image"]
                continue
            if image is not None:
                container["image"] = image
            if store is not None:
                _set_argument(container, _STORE, store)
    return found


def find_image(documents: list[Json]) -> str:
    """Return the image of the servers."""
    wanted = ("Deployment", _SERVER)
    servers = (document for document in documents if (document["kind"], document["metadata"]["name"]) == wanted)
    return next((str(container["image"]) for server in servers for container in _list_containers(server)), "")


def set_token_issuer(documents: list[Json], issuer: str) -> list[Json]:
    """Return the objects of the node agent with the token issuer `own` or `cluster`."""
    found = deepcopy(documents)
    for container in (container for document in found for container in _list_containers(document)):
        _set_argument(container, _TOKEN, issuer)
    return found


def set_identity_issuer(documents: list[Json], issuer: str) -> list[Json]:
    """Return the objects with the cluster's token issuer in the identities."""
    found = deepcopy(documents)
    for document in found:
        if document["kind"] == "ConfigMap" and _IDENTITIES in document["data"]:
            text = document["data"][_IDENTITIES]
            document["data"][_IDENTITIES] = text.replace(f"{_USUAL_ISSUER}\n", f"{issuer}\n")
    return found


def set_team_labels(documents: list[Json], keys: Sequence[str]) -> list[Json]:
    """Return the objects with the labels of Namespaces that only admins change."""
    found = deepcopy(documents)
    for document in found:
        if document["metadata"]["name"] == _TEAM_LABELS and document["kind"] == "ConfigMap":
            document["data"] = {"labels": ",".join(keys)}
    return found


def set_scheduler_version(documents: list[Json], git_version: str) -> list[Json]:
    """Return the objects with the cluster's version of kube-scheduler, unless its image has a tag or a digest."""
    found = deepcopy(documents)
    version = match(r"v\d+\.\d+\.\d+", git_version)  # providers append their own: v1.36.3-eks-1a2b3c4
    schedulers = (document for document in found if _is_scheduler(document))
    for container in (container for document in schedulers for container in _list_containers(document)):
        if version is not None and ":" not in container["image"].rpartition("/")[2]:
            container["image"] += f":{version[0]}"
    return found


def _is_scheduler(document: Json) -> bool:
    return bool((document["kind"], document["metadata"]["name"]) == ("Deployment", _SCHEDULER))


def _list_containers(document: Json) -> Iterator[Json]:
    if document["kind"] in _WORKLOADS:
        yield from document["spec"]["template"]["spec"]["containers"]


def _set_argument(container: Json, flag: str, value: str) -> None:
    container["args"] = [
        f"{flag}{value}" if argument.startswith(flag) else argument for argument in container.get("args", [])
    ]
