"""Disruption of a watched Pod by the cluster: eviction, preemption or node loss; and the controller that replaces it.

A tenant can write ownerReferences, and evict its own Pods. The only effect is that quota denials of its own service do
not count as quota events for a while. The quota itself still applies.
"""

from webhook.core.kubernetes.controllers import CONTROLLER
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import moment_us

# Written by kubelets and the node controller before the condition existed, and still written beside it.
_REASONS = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})


def is_disrupted(pod: Pod) -> bool:
    """Return whether the cluster has removed a Pod, or is about to."""
    return disrupted_us(pod) is not None


def disrupted_us(pod: Pod) -> int | None:
    """Return when the cluster removed a Pod, 0 if the time is unknown, None if it did not."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return moment_us(condition.last_transition_time)
    return 0 if pod.status.reason in _REASONS else None


def replacing(pod: Pod) -> str | None:
    """Return the source of quota events that creates the replacement of this Pod, None if nothing does."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller and owner.uid:
            return f"{CONTROLLER}{owner.uid}"
    return None
