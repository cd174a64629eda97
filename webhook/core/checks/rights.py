"""Rights that the manifests grant to Podgate's service accounts, one for each verb, resource and name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.ways import REDIS

_CONTROLLER = "podgate-controller"
_FOLDERS = {_CONTROLLER: "redis/", "podgate-extender": "scheduler/"}
"""Folders of manifests that are only applied together with a Deployment."""
_OF_KUBERNETES: Mapping[tuple[str, str], Sequence[Json]] = {
    ("ClusterRole", "system:kube-scheduler"): [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}],
    ("ClusterRole", "system:volume-scheduler"): [
        {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["update"]}
    ],
}
"""A part of roles that Kubernetes maintains: whether they are bound."""


class Right(NamedTuple):
    """One verb on a resource. Without a namespace: on all of the cluster; without a name: on all objects."""

    account: str
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        kind = f"{resource}.{self.group}" if self.group else resource
        named = f" named {self.name}" if self.name else ""
        return f"{self.verb} {kind}{named}" + (f" in {self.namespace}" if self.namespace else "")


def expected_rights(manifests: Mapping[str, Sequence[Json]], facts: ClusterFacts) -> tuple[Right, ...]:
    """Return the rights of the documents that are meant for this installation: with or without a controller."""
    deployed = {one.name for one in facts.deployments}
    recorded = {} if facts.record_map is None else facts.record_map.data or {}
    if recorded.get("mode") == REDIS:
        deployed.add(_CONTROLLER)  # outside the cluster it has no Deployment
    has_controller = _CONTROLLER in deployed
    absent = [folder for name, folder in _FOLDERS.items() if name not in deployed]
    documents = [one for path, found in manifests.items() if not path.startswith(tuple(absent)) for one in found]
    roles = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in documents if one["kind"].endswith("Role")}
    roles |= _OF_KUBERNETES
    rights: dict[Right, None] = {}
    for binding in documents:
        reference = binding.get("roleRef")
        if reference is None or (has_controller and "in-memory" in binding["metadata"]["name"]):
            continue
        namespace = NAMESPACE if binding["kind"] == "RoleBinding" else ""
        for subject in binding["subjects"]:
            for rule in roles.get((reference["kind"], reference["name"]), ()):
                rights.update(dict.fromkeys(_of_rule(subject["name"], namespace, rule)))
    return tuple(rights)


def _of_rule(account: str, namespace: str, rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for whole in rule["resources"]:
            resource, _, subresource = whole.partition("/")
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield Right(account, verb, group, resource, subresource, namespace, name)
