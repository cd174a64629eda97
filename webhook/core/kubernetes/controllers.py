"""Owning controllers of Pods, trusted only if a Kubernetes controller made the request."""

from webhook.core.kubernetes.pod import OwnerReference, Pod

# Only these users are trusted with ownerReferences: a tenant can write them too.
_KUBE_CONTROLLERS = frozenset(
    {"system:kube-controller-manager"}
    | {
        f"system:serviceaccount:kube-system:{name}-controller"
        for name in ("replicaset", "replication", "statefulset", "job", "cronjob", "daemon-set")
    }
)

CONTROLLER = "controller:"
"""Prefix of a source of quota events and failures that is a controller; its uid follows."""


def owning_controller(user: str, pod: Pod) -> OwnerReference | None:
    """Return the controller that owns the Pod; None if it has none, or `user` is not a Kubernetes controller."""
    if user not in _KUBE_CONTROLLERS:
        return None
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return reference
    return None


def controller_source(pod: Pod) -> str:
    """Return the event source of a Pod in the cluster: the controller that owns it, "" without one."""
    owners = [owner for owner in pod.metadata.owner_references or () if owner.controller]
    return f"{CONTROLLER}{owners[0].uid}" if owners else ""
