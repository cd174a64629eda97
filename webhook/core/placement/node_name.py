"""spec.nodeName: a Pod that sets it bypasses the scheduler, with spread constraints and NoSchedule taints.

The node's kubelet still checks required node affinity and nodeSelector. Only new Pods are checked: later the
scheduler sets the field.
"""

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement.plan import PlacementPlan

_FIELD = "spec.nodeName"


def violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.node_name
    if not own or plan.allow_node_name:
        return []
    text = (
        f"{_FIELD} is {own!r}, which bypasses the scheduler: remove the field from the Pod; to ask for one node, use"
        " nodeSelector with kubernetes.io/hostname, or have the policy's owner set placement.allowNodeName"
    )
    return [Violation(Code.NODE_NAME_SET, _FIELD, _FIELD, text)]
