"""Field ownership: the managers of an object, and the hand-over of fields that kubectl has applied."""

from collections.abc import Iterator

from webhook.core.installation.objects import FIELD_MANAGER, Json

_KUBECTL = {("kubectl-client-side-apply", "Update"), ("kubectl-create", "Update"), ("kubectl", "Apply")}
_TOOLS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}
"""Labels and annotations of tools that keep applying their objects."""
MANAGED_BY = "app.kubernetes.io/managed-by"
OF_LEADER = "podgate-certs"
_OURS = {"podgate", OF_LEADER}


def is_installed(document: Json) -> bool:
    """Return whether `podgate install` has applied an object."""
    return any(_is_of_install(entry) for entry in _list_entries(document))


def is_of_leader(document: Json) -> bool:
    """Return whether the leader manages an object: certificates, keys and tokens."""
    return bool((document["metadata"].get("labels") or {}).get(MANAGED_BY) == OF_LEADER)


def list_managers(document: Json) -> list[str]:
    """Return the managers of an object's fields, except its status."""
    return list(dict.fromkeys(str(entry.get("manager", "")) for entry in _list_entries(document)))


def find_other_tool(document: Json) -> tuple[str, str, str] | None:
    """Return the place and value of the mark of another tool that manages an object, and the tool; None without."""
    metadata = document["metadata"]
    for place in ("labels", "annotations"):
        found = metadata.get(place) or {}
        for key, tool in _TOOLS.items():
            if key in found:
                return f"{place}[{key}]", str(found[key]), tool
        if place == "labels" and found.get(MANAGED_BY, "podgate") not in _OURS:
            return f"labels[{MANAGED_BY}]", str(found[MANAGED_BY]), str(found[MANAGED_BY])
    return None


def hand_over(document: Json) -> list[Json] | None:
    """Return managedFields in which `install` owns the fields that kubectl has applied; None if there are none.

    The next apply then removes fields that `install` does not have, such as a volume of another version.
    """
    entries = list((document["metadata"].get("managedFields")) or ())
    given = [entry for entry in entries if _is_of_kubectl(entry)]
    if not given:
        return None
    own = next((entry for entry in entries if _is_of_install(entry)), None)
    version = (own or given[0])["apiVersion"]
    given = [entry for entry in given if entry["apiVersion"] == version]  # other versions have other fields
    fields: Json = {}
    for entry in (own, *given):
        fields = _merge(fields, {} if entry is None else entry.get("fieldsV1") or {})
    taken = {"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": version, "fieldsType": "FieldsV1"}
    others = (entry for entry in entries if entry is not own and entry not in given)
    return [*others, {**taken, "fieldsV1": fields}]


def _list_entries(document: Json) -> Iterator[Json]:
    for entry in document["metadata"].get("managedFields") or ():
        if not entry.get("subresource"):
            yield entry


def _is_of_install(entry: Json) -> bool:
    found = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
    return found == (FIELD_MANAGER, "Apply", "")


def _is_of_kubectl(entry: Json) -> bool:
    return (entry.get("manager"), entry.get("operation")) in _KUBECTL and not entry.get("subresource")


def _merge(one: Json, other: Json) -> Json:
    return {**one, **{key: _merge(one.get(key, {}), value) for key, value in other.items()}}
