"""Kubernetes objects as documents: their references, their paths at the API server, and the order of applying them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

FIELD_MANAGER = "podgate-install"
OWNER_FIELD_MANAGER = "kubectl"
"""Manager of the user's objects, such as the policy, so that `kubectl apply --server-side` has no conflict."""
UNDO_FIELD_MANAGER = "podgate-undo"
"""Manager of the objects that `install` has restored after a failed rollout."""

ORDER = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount"),
    *("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
    *("Issuer", "Certificate", "Secret", "ConfigMap", "ResourceQuota", "NetworkPolicy", "PodDisruptionBudget"),
    *("StorageClass", "Service", "Deployment", "DaemonSet"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
)
"""Kinds in the order of applying them: each before the kinds that need it."""
_CLUSTER_SCOPED = frozenset(
    {
        *("Namespace", "CustomResourceDefinition", "PriorityClass", "ClusterRole", "ClusterRoleBinding"),
        *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "StorageClass"),
        *("ServiceStatus", "PolicyRollout", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "ServiceStatus": "servicestatuses",
    "StorageClass": "storageclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Kind and name of an object; `namespace` is "" for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def from_document(cls, document: Json) -> "ObjectReference":
        metadata = document["metadata"]
        return cls(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace", ""))

    @property
    def resource(self) -> str:
        """Plural and group, as in RBAC and kubectl: `deployments.apps`."""
        group = self.api_version.rpartition("/")[0]
        plural = _PLURALS.get(self.kind, f"{self.kind.lower()}s")
        return f"{plural}.{group}" if group else plural

    @property
    def collection(self) -> str:
        """Path of the objects of this kind."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{scope}/{self.resource.partition('.')[0]}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def operand(self) -> str:
        """Words by which kubectl finds it: `deployment.apps/podgate -n podgate-system`."""
        return f"{self} -n {self.namespace}" if self.namespace else str(self)

    @property
    def sort_key(self) -> tuple[int, str, str]:
        """Rank of the kind in ORDER; an unknown kind is the last."""
        return (ORDER.index(self.kind) if self.kind in ORDER else len(ORDER), self.namespace, self.name)

    def __str__(self) -> str:
        group = self.api_version.rpartition("/")[0]
        return f"{self.kind.lower()}{f'.{group}' if group else ''}/{self.name}"


def is_namespaced(document: Json) -> bool:
    return document["kind"] not in _CLUSTER_SCOPED


def sort_objects(documents: Iterable[Json]) -> list[Json]:
    """Return the objects in the order of applying them."""
    return sorted(documents, key=lambda document: ObjectReference.from_document(document).sort_key)


def differs(live: Json, applied: Json) -> bool:
    """Return whether applying changed an object, apart from fields that the API server and kubectl maintain."""
    return _strip_maintained(live) != _strip_maintained(applied)


def _strip_maintained(document: Json) -> Json:
    metadata = {key: value for key, value in document.get("metadata", {}).items() if key not in _MAINTAINED}
    annotations = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != _LAST_APPLIED
    }
    if annotations:
        metadata["annotations"] = annotations
    return {**{key: value for key, value in document.items() if key != "status"}, "metadata": metadata}


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAINTAINED = frozenset({"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"})
