"""Controllers: the workload kinds, their Pod templates, and the owners of Pods, trusted only from Kubernetes itself."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.core.kubernetes.pod import OwnerReference, Pod
from webhook.core.kubernetes.pod_identity import UID_MAX, shorten

_CONTROLLERS = "system:serviceaccount:kube-system:"


class WorkloadKind(NamedTuple):
    """One kind; `controller` is the user that creates its Pods, `maker` the kind that owns them, if another."""

    group: str
    resource: str
    kind: str
    controller: str
    maker: str = ""
    template_at: tuple[str, ...] = ("spec", "template")

    @property
    def shown(self) -> str:
        """The kind as kubectl writes it before a name."""
        kind = self.kind.lower()
        return f"{kind}.{self.group}" if self.group else kind

    @property
    def owner_kind(self) -> str:
        """The kind that the policy calls the owner of the Pods: Job for a CronJob."""
        return "Job" if self.kind == "CronJob" else self.kind

    @property
    def makes(self) -> str:
        """The kind of the controllers that it creates, "" if it creates its Pods itself."""
        return self.maker or ("" if self.owner_kind == self.kind else self.owner_kind)

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


WORKLOAD_KINDS = (
    WorkloadKind("apps", "deployments", "Deployment", f"{_CONTROLLERS}replicaset-controller", "ReplicaSet"),
    WorkloadKind("apps", "replicasets", "ReplicaSet", f"{_CONTROLLERS}replicaset-controller"),
    WorkloadKind("apps", "statefulsets", "StatefulSet", f"{_CONTROLLERS}statefulset-controller"),
    WorkloadKind("apps", "daemonsets", "DaemonSet", f"{_CONTROLLERS}daemon-set-controller"),
    WorkloadKind("batch", "jobs", "Job", f"{_CONTROLLERS}job-controller"),
    WorkloadKind(
        "batch",
        "cronjobs",
        "CronJob",
        f"{_CONTROLLERS}job-controller",
        "Job",
        ("spec", "jobTemplate", "spec", "template"),
    ),
    WorkloadKind("", "replicationcontrollers", "ReplicationController", f"{_CONTROLLERS}replication-controller"),
)
BY_RESOURCE = {(source.group, source.resource): source for source in WORKLOAD_KINDS}


# Only these users are trusted with ownerReferences: a tenant can write them too.
_KUBE_CONTROLLERS = frozenset(
    {"system:kube-controller-manager"}
    | {
        f"system:serviceaccount:kube-system:{name}-controller"
        for name in ("replicaset", "replication", "statefulset", "job", "cronjob", "daemon-set")
    }
)

_GROUPS = {
    **dict.fromkeys(("ReplicaSet", "StatefulSet", "DaemonSet"), "apps"),
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    "ReplicationController": "",
}
"""API group of each kind whose controller creates Pods: other groups have kinds of the same names."""
_TEMPLATE_HASH = "pod-template-hash"
_CRON_SUFFIX = re.compile(r"-\d{7,10}$")
"""A CronJob names each Job by its scheduled minute."""
CONTROLLER = "controller:"
"""Prefix of a source of quota events and failures that is a controller; its uid follows."""


def find_owning_controller(user: str, pod: Pod) -> OwnerReference | None:
    """Return the controller that owns the Pod; None if it has none, or `user` is not a Kubernetes controller."""
    if user not in _KUBE_CONTROLLERS:
        return None
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return reference
    return None


def find_owner_kind(user: str, pod: Pod) -> str:
    """Return the kind of the workload whose controller creates a Pod, "" if `user` is not a Kubernetes controller."""
    owner = find_owning_controller(user, pod)
    return "" if owner is None else _find_kind(owner, pod.labels)


def find_workload(user: str, pod: Pod) -> tuple[str, str]:
    """Return kind and name of the workload whose controller creates a Pod; the Pod's own without one.

    A ReplicaSet of a Deployment stands for the Deployment: each rollout makes another ReplicaSet.
    """
    owner = find_owning_controller(user, pod)
    if owner is None:
        return "Pod", pod.metadata.name or pod.metadata.generate_name
    kind = _find_kind(owner, pod.labels)
    is_deployment = kind == "Deployment" and owner.kind == "ReplicaSet"
    return kind, owner.name.removesuffix(f"-{pod.labels[_TEMPLATE_HASH]}") if is_deployment else owner.name


def list_workloads(user: str, pod: Pod) -> tuple[tuple[str, str], ...]:
    """Return kind and name of each workload that a new Pod belongs to: that of its controller, and a Job's CronJob.

    Empty if `user` is not a Kubernetes controller. A Job and a ReplicaSet are believed by their name and labels.
    """
    if find_owning_controller(user, pod) is None:
        return ()
    kind, name = find_workload(user, pod)
    return add_cron_job(kind, name)


def add_cron_job(kind: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return a workload, and the CronJob that has made it if it is a Job of that name."""
    if kind == "Job" and _CRON_SUFFIX.search(name):
        return (kind, name), ("CronJob", _CRON_SUFFIX.sub("", name))
    return ((kind, name),)


def find_claimed_owner_kind(references: Iterable[OwnerReference] | None, labels: Mapping[str, str] | None) -> str:
    """Return the kind of the workload that an existing Pod names as its controller, "" if its API is another.

    A tenant can write this name.
    """
    owner = next((reference for reference in references or () if reference.controller), None)
    group = None if owner is None else _GROUPS.get(owner.kind)
    # The garbage collector deletes Pods whose owner does not exist, but not those whose version it does not know.
    if owner is None or group is None or owner.api_version != (f"{group}/v1" if group else "v1"):
        return ""
    return _find_kind(owner, labels or {})


def is_like_daemon_pod(pod: Pod) -> bool:
    """Return whether an existing Pod has what the DaemonSet controller writes: itself as owner, and one node.

    A tenant can write both, for a DaemonSet that exists, and then the Pod can run on this one node only.
    """
    owned = find_claimed_owner_kind(pod.metadata.owner_references, None) == "DaemonSet"
    return owned and find_pinned_node(pod) != ""


def find_pinned_node(pod: Pod) -> str:
    """Return the one node that each term of a Pod's required node affinity names as a field, "" without one."""
    affinity = pod.spec.affinity
    required = None if affinity is None or affinity.node_affinity is None else affinity.node_affinity.required
    terms = () if required is None else required.node_selector_terms or ()
    pins = [
        {
            field.values[0]
            for field in term.match_fields or ()
            if (field.key, field.operator) == ("metadata.name", "In") and field.values and len(field.values) == 1
        }
        for term in terms
    ]
    return min(set.intersection(*pins), default="") if pins else ""


def _find_kind(owner: OwnerReference, labels: Mapping[str, str]) -> str:
    """Return the owner's kind; Deployment for a ReplicaSet whose name ends with the label that Deployments write."""
    of_template = labels.get(_TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and of_template and owner.name.endswith(f"-{of_template}"):
        return "Deployment"
    return owner.kind


def find_controller_source(pod: Pod) -> str:
    """Return the event source of a Pod in the cluster: the controller of Kubernetes that owns it, "" without one.

    A tenant can invent any other owner. A Pod of one that does not exist, or has enough Pods, is deleted by Kubernetes.
    """
    owners = [owner for owner in pod.metadata.owner_references or () if owner.controller]
    return format_controller_source(owners[0]) if find_claimed_owner_kind(owners, None) else ""


def format_controller_source(owner: OwnerReference) -> str:
    """Return a controller as a source of quota events and failures: each review reads those of its breaker.

    Its uid is bounded as in a review: Kubernetes stores one of any length.
    """
    return f"{CONTROLLER}{shorten(owner.uid, UID_MAX)}"


def name_workload(pod: Mapping[str, Any], namespace: str, user: str) -> str:
    """Return the workload of a Pod for people: the Deployment of a ReplicaSet, the CronJob of a Job, or its creator."""
    metadata = pod.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    owner = next((reference for reference in owners if reference.get("controller")), None)
    if owner is None:
        return f"Pods of {user} in {namespace}"
    kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
    template = (metadata.get("labels") or {}).get(_TEMPLATE_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        kind, name = "Deployment", name.removesuffix(f"-{template}")
    elif kind == "Job" and _CRON_SUFFIX.search(name):
        kind, name = "CronJob", _CRON_SUFFIX.sub("", name)
    return f"{kind} {namespace}/{name}"
