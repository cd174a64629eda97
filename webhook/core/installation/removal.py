"""Removal of an installation: the objects of all ways to install, in order, and what belongs to others."""

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
_FIRST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Deployment", "DaemonSet")
_LAST = ("ClusterRoleBinding", "ClusterRole", "CustomResourceDefinition", "Namespace")
_REGISTRATION = "admissionregistration.k8s.io/v1"
_OF_CLUSTER = ("default", "kube-root-ca.crt")
"""Objects that Kubernetes creates in each namespace."""
_RBAC = "rbac.authorization.k8s.io/v1"
IN_NAMESPACE = tuple(
    ObjectReference(version, kind, "", configmap.NAMESPACE)
    for version, kinds in (
        ("apps/v1", ("Deployment", "StatefulSet", "DaemonSet")),
        ("v1", ("Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "ResourceQuota")),
        ("coordination.k8s.io/v1", ("Lease",)),
        ("networking.k8s.io/v1", ("NetworkPolicy",)),
        ("policy/v1", ("PodDisruptionBudget",)),
        (_RBAC, ("RoleBinding", "Role")),
    )
    for kind in kinds
)
"""The kinds of objects that the namespace may have, without their names."""
_OF_LIFE = ("NamesAccepted", "Established")
"""Conditions of a CustomResourceDefinition that say nothing about its deletion."""
POLICIES = (configmap.NAME, configmap.OVERRIDES)
PODS_LEFT = (
    f"kubectl annotate pods -A -l {SERVICE_LABEL} {HASH_ANNOTATION}-",
    f"kubectl label pods -A -l {SERVICE_LABEL} {SERVICE_LABEL}-",
)
"""Commands that remove from live Pods what Podgate wrote into them."""

UNSCHEDULED = f"kubectl delete pods -A --field-selector spec.schedulerName={SCHEDULER},spec.nodeName="
"""Command that deletes the Pods which no scheduler tries; their controllers create others."""


def removed(manifests: Iterable[Json]) -> list[ObjectReference]:
    """Return the objects of the manifests in the order of their removal: the webhooks first, the namespace last."""
    found = {ObjectReference.of(one) for one in manifests if _is_object(one)}
    found |= {ObjectReference(_REGISTRATION, kind, PROBE) for kind in _FIRST[:2]}
    return sorted(found - {NAMESPACE}, key=_rank)


def is_ours(document: Json) -> bool:
    """Return whether an object with one of Podgate's names is Podgate's, and not another's of the same name."""
    labels = document["metadata"].get("labels") or {}
    return str(labels.get(_NAME_LABEL, "")).startswith(_PREFIX)


def is_others(document: Json) -> bool:
    """Return whether an object of the namespace belongs neither to Podgate nor to Kubernetes."""
    return not is_of_podgate(document) and document["metadata"]["name"] not in _OF_CLUSTER


def is_of_podgate(document: Json) -> bool:
    """Return whether an object of the namespace is Podgate's: by its label, or by its name if users created it."""
    return is_ours(document) or document["metadata"]["name"].startswith(_PREFIX)


def why_not_gone(document: Json) -> list[str]:
    """Return why a deleted object with finalizers still exists, as the API server says; empty if it does not."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return [one["message"] for one in conditions if one["status"] == "True" and one["type"] not in _OF_LIFE]


def _is_object(document: Json) -> bool:
    return "name" in document.get("metadata", {})


def _rank(reference: ObjectReference) -> tuple[int, str, str]:
    kind = reference.kind
    if kind in _FIRST:
        place = _FIRST.index(kind)
    elif kind in _LAST:
        place = len(_FIRST) + 1 + _LAST.index(kind)
    else:
        place = len(_FIRST)
    return place, kind, reference.name
