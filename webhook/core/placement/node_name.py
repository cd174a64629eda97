"""A Pod that names its node: no scheduler sees it, so that neither spread constraints nor NoSchedule taints hold.

The kubelet of that node still looks at required node affinity and nodeSelector. Only a new Pod is judged by its
`nodeName`: later it is the scheduler's.
"""

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement.plan import PlacementPlan

_FIELD = "spec.nodeName"


def lacks(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    own = pod.spec.node_name
    if not own or plan.allow_node_name:
        return []
    text = (
        f"{_FIELD} is {own!r}, which bypasses the scheduler: remove the field from the Pod; to ask for one node, use"
        " nodeSelector with kubernetes.io/hostname, or have the policy's owner set placement.allowNodeName"
    )
    return [Violation(Code.NODE_NAME_SET, _FIELD, _FIELD, text)]
