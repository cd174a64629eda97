"""Whose Pod it is that somebody makes for others: the owning controller, as far as it can be believed."""

from webhook.core.kubernetes.pod import OwnerReference, Pod

# Who makes Pods for others: only their word on the owning controller is believed, a tenant can write ownerReferences.
_KUBE_CONTROLLERS = frozenset(
    {"system:kube-controller-manager"}
    | {
        f"system:serviceaccount:kube-system:{name}-controller"
        for name in ("replicaset", "replication", "statefulset", "job", "cronjob", "daemon-set")
    }
)

CONTROLLER = "controller:"
"""Begins a source of quota events and failures that is a controller; its uid follows."""


def owning_controller(user: str, pod: Pod) -> OwnerReference | None:
    """Return the controller that owns the Pod; None where it has none, or `user` is no kube controller."""
    if user not in _KUBE_CONTROLLERS:
        return None
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return reference
    return None
