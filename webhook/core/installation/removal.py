"""Removal of an installation: the objects of all ways in order, and which objects belong to others."""

from collections.abc import Iterable

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.document import configmap
from webhook.core.installation.objects import Json, ObjectReference
from webhook.core.installation.plan import NAMESPACE
from webhook.core.installation.probe import PROBE
from webhook.core.installation.record import SCHEDULER
from webhook.core.placement import SERVICE_LABEL

_NAME_LABEL = "app.kubernetes.io/name"
_PREFIX = "podgate"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_FIRST = (
    *_WEBHOOKS,
    *("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"),
    *("Deployment", "DaemonSet"),
)
_LAST = ("ClusterRoleBinding", "ClusterRole", "CustomResourceDefinition", "Namespace")
_REGISTRATION = "admissionregistration.k8s.io/v1"
_OF_CLUSTER = ("default", "kube-root-ca.crt")
"""Objects that Kubernetes creates in each namespace."""
_RBAC = "rbac.authorization.k8s.io/v1"
IN_NAMESPACE = tuple(
    ObjectReference(version, kind, "", configmap.NAMESPACE)
    for version, kinds in (
        ("apps/v1", ("Deployment", "StatefulSet", "DaemonSet", "ControllerRevision")),
        ("v1", ("Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "ResourceQuota")),
        ("coordination.k8s.io/v1", ("Lease",)),
        ("networking.k8s.io/v1", ("NetworkPolicy",)),
        ("policy/v1", ("PodDisruptionBudget",)),
        (_RBAC, ("RoleBinding", "Role")),
    )
    for kind in kinds
)
"""The kinds of objects that the namespace may have, as references without names."""
_OF_LIFE = ("NamesAccepted", "Established")
"""Conditions of a CustomResourceDefinition that say nothing about its deletion."""
POLICIES = (configmap.NAME, configmap.OVERRIDES)
PODS_LEFT = (
    f"kubectl annotate pods -A -l {SERVICE_LABEL} {HASH_ANNOTATION}-",
    f"kubectl label pods -A -l {SERVICE_LABEL} {SERVICE_LABEL}-",
)
"""Commands that remove Podgate's label and annotation from live Pods."""

UNSCHEDULED = f"kubectl delete pods -A --field-selector spec.schedulerName={SCHEDULER},spec.nodeName="
"""Command that deletes the Pods that have lost their scheduler; their controllers create others."""


def list_removed(manifests: Iterable[Json]) -> list[ObjectReference]:
    """Return the objects of the manifests in the order of removal, webhooks first, without the namespace."""
    found = {ObjectReference.from_document(document) for document in manifests if _is_object(document)}
    found |= {ObjectReference(_REGISTRATION, kind, PROBE) for kind in _WEBHOOKS}
    return sorted(found - {NAMESPACE}, key=_compute_rank)


def is_ours(document: Json) -> bool:
    """Return whether an object with one of Podgate's names belongs to Podgate, by its label."""
    labels = document["metadata"].get("labels") or {}
    return str(labels.get(_NAME_LABEL, "")).startswith(_PREFIX)


def is_foreign(document: Json) -> bool:
    """Return whether an object of the namespace belongs neither to Podgate nor to Kubernetes."""
    return not is_of_podgate(document) and document["metadata"]["name"] not in _OF_CLUSTER


def is_of_podgate(document: Json) -> bool:
    """Return whether an object of the namespace belongs to Podgate, by its label, or by its name if users create it."""
    return is_ours(document) or document["metadata"]["name"].startswith(_PREFIX)


def list_deletion_obstacles(document: Json) -> list[str]:
    """Return why a deleted object with finalizers still exists, as the API server reports; empty if it does not."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return [
        condition["message"]
        for condition in conditions
        if condition["status"] == "True" and condition["type"] not in _OF_LIFE
    ]


def _is_object(document: Json) -> bool:
    return "name" in document.get("metadata", {})


def _compute_rank(reference: ObjectReference) -> tuple[int, str, str]:
    kind = reference.kind
    if kind in _FIRST:
        place = _FIRST.index(kind)
    elif kind in _LAST:
        place = len(_FIRST) + 1 + _LAST.index(kind)
    else:
        place = len(_FIRST)
    return place, kind, reference.name
