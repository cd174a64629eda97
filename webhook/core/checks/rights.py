"""Rights that the manifests grant to Podgate's service accounts, one for each verb, resource and name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.ways import OWN, REDIS

_CONTROLLER, _NODE_AGENT = "podgate-controller", "podgate-apiserver-files"
_FOLDERS = {_CONTROLLER: "redis/", "podgate-extender": "scheduler/", _NODE_AGENT: "apiserver/"}
"""Folders of manifests that are only applied together with a Deployment, or a DaemonSet."""
_CERTIFICATES = "certificates"
_OWN_CERTIFICATES, _NO_WAKING = "--certificates=own", "--wake-controllers=false"
_KUBERNETES_ROLES: Mapping[tuple[str, str], Sequence[Json]] = {
    ("ClusterRole", "system:kube-scheduler"): [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}],
    ("ClusterRole", "system:volume-scheduler"): [
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["update"]}
    ],
}
"""One rule of each role that Kubernetes maintains, which shows whether the role is bound."""


class Right(NamedTuple):
    """One verb on a resource. Without a namespace: in the whole cluster; without a name: on all objects."""

    account: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    account_namespace: str = NAMESPACE
    manifests: tuple[str, ...] = ()
    """The files with the role and its binding."""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        kind = f"{resource}.{self.group}" if self.group else resource
        named = f" named {self.name}" if self.name else ""
        return f"{self.verb} {kind}{named}" + (f" in {self.namespace}" if self.namespace else "")


def list_expected_rights(manifests: Mapping[str, Sequence[Json]], facts: ClusterFacts) -> tuple[Right, ...]:
    """Return the rights of the documents that are meant for this installation: with or without a controller."""
    deployed = {workload.name for workload in (*facts.deployments, *facts.daemon_sets)}
    recorded = {} if facts.record_map is None else facts.record_map.data or {}
    if recorded.get("mode") == REDIS:
        deployed.add(_CONTROLLER)  # outside the cluster it has no Deployment
    has_controller = _CONTROLLER in deployed
    arguments = _list_arguments(facts)
    absent = [folder for name, folder in _FOLDERS.items() if name not in deployed]
    if recorded.get("certificates") != OWN and _OWN_CERTIFICATES not in arguments:
        absent.append(_CERTIFICATES)
    elif not has_controller:
        absent.append(f"{_CERTIFICATES}/")  # the folder certificates-in-memory grants them to the server
    every = [document for found in manifests.values() for document in found]
    roles = {
        (document["kind"], document["metadata"]["name"]): document["rules"]
        for document in every
        if document["kind"].endswith("Role")
    }
    roles |= _KUBERNETES_ROLES
    places = {
        (document["kind"], document["metadata"]["name"]): path
        for path, found in manifests.items()
        for document in found
    }
    rights: dict[Right, tuple[str, ...]] = {}
    meant = {path: found for path, found in manifests.items() if not path.startswith(tuple(absent))}
    for path, binding in ((path, document) for path, found in meant.items() for document in found):
        if "-retries" in path and _NO_WAKING in arguments:
            continue
        reference = binding.get("roleRef")
        if reference is None or (has_controller and "in-memory" in binding["metadata"]["name"]):
            continue
        namespace = NAMESPACE if binding["kind"] == "RoleBinding" else ""
        for subject in binding["subjects"]:
            role = (reference["kind"], reference["name"])
            files = tuple(dict.fromkeys((places.get(role, path), path)))
            for right in (
                granted for rule in roles.get(role, ()) for granted in _list_rights(subject["name"], namespace, rule)
            ):
                rights.setdefault(right._replace(account_namespace=subject.get("namespace", NAMESPACE)), files)
    return tuple(right._replace(manifests=files) for right, files in rights.items())


def _list_arguments(facts: ClusterFacts) -> set[str]:
    containers = (container for found in facts.deployments for container in found.spec.template.spec.containers or ())
    return {argument for container in containers for argument in container.args or ()}


def _list_rights(account: str, namespace: str, rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for whole in rule["resources"]:
            resource, _, subresource = whole.partition("/")
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield Right(account, verb, group, resource, subresource, namespace, name)
