"""Disruption of a watched Pod by the cluster: eviction, preemption or node loss; and the controller that replaces it.

A tenant can write ownerReferences, and evict Pods of its own: all that it gains is that quota refusals of its own
service do not count as quota events for a while. The quota holds all the same.
"""

from webhook.core.kubernetes.controllers import CONTROLLER
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import moment_us

# What kubelets and the node controller wrote of Pods before there was the condition, and still write beside it.
_REASONS = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"})


def is_disrupted(pod: Pod) -> bool:
    """Say whether the cluster has taken a Pod away, or is about to."""
    return disrupted_us(pod) is not None


def disrupted_us(pod: Pod) -> int | None:
    """Return when the cluster took a Pod away, 0 where it does not say when; None where it did not."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return moment_us(condition.last_transition_time)
    return 0 if pod.status.reason in _REASONS else None


def replacing(pod: Pod) -> str | None:
    """Return the source of quota events that makes another Pod in the place of this one, if anything does."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller and owner.uid:
            return f"{CONTROLLER}{owner.uid}"
    return None
